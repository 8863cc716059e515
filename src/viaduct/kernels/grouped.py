"""Convolutions of more than one cell: by the library, but for what it is slow at, which kernels of ours do.

These are grouped 3x3 convolutions, by the kernels of grouped.cu where they can be compiled. SAME padding is
TensorFlow's, where a layer has it; the library wants a copy of the pictures for it, our kernels do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.kernels import grouped_cuda
from viaduct.models.padding import SameConv2d, same_padding


def paddings(x: Tensor, conv: nn.Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Before and after, of rows and of columns."""
    if isinstance(conv, SameConv2d):
        sizes = zip(x.shape[2:], conv.kernel_size, conv.stride, strict=True)
        down, across = (same_padding(size, kernel, stride) for size, kernel, stride in sizes)
        return down, across
    top, left = (int(cells) for cells in conv.padding)
    return (top, top), (left, left)


def output_size(x: Tensor, conv: nn.Conv2d) -> tuple[int, int]:
    pads = paddings(x, conv)
    sizes = zip(x.shape[2:], pads, conv.kernel_size, conv.stride, strict=True)
    height, width = ((size + sum(pad) - kernel) // stride + 1 for size, pad, kernel, stride in sizes)
    return height, width


def in_groups(conv: nn.Conv2d) -> bool:
    """Whether our kernels could do this layer: 3x3, in groups of 4 to 32 channels, as many out as in."""
    alike = conv.in_channels == conv.out_channels and conv.in_channels % 64 == 0
    small = conv.groups > 1 and conv.in_channels // conv.groups in (4, 8, 16, 32)
    strides = conv.stride in ((1, 1), (2, 2))
    return alike and small and strides and conv.kernel_size == (3, 3) and conv.dilation == (1, 1)


def layer_of(x: Tensor, conv: nn.Conv2d) -> grouped_cuda.Layer:
    count, channels, height, width = x.shape
    (top, _), (left, _) = paddings(x, conv)
    sizes = (count, height, width, *output_size(x, conv), channels, channels // conv.groups)
    return grouped_cuda.Layer(*sizes, conv.stride[0], top, left)


FEW = 25_000  # pixels, below which parts of weights cost more than they save


def own(way: str, conv: nn.Conv2d, x: Tensor, *seen: Tensor) -> bool:
    """Whether the kernels of grouped.cu go this way of this layer, "forward", "input" or "weight": where they are
    quicker than cuDNN on an H200."""
    if not in_groups(conv) or (conv.stride == (1, 1) and library_is_quicker(way, conv, x)):
        return False
    return all(grouped_cuda.ready(one) for one in (x, *seen))


def by_ours(way: str, conv: nn.Conv2d, work: Callable[[], Tensor], x: Tensor, *seen: Tensor) -> Tensor | None:
    """What our kernel makes of it; None: it is somebody else's."""
    return grouped_cuda.attempted(work, x.device) if own(way, conv, x, *seen) else None


def library_is_quicker(way: str, conv: nn.Conv2d, x: Tensor) -> bool:
    per_group = conv.in_channels // conv.groups
    return per_group == 32 or (way == "weight" and per_group == 16 and x.shape[0] * x.shape[2] * x.shape[3] < FEW)


def forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    """`weight` is in the precision of x and lies channels_last."""
    made = by_ours("forward", conv, lambda: grouped_cuda.convolution(x, weight, layer_of(x, conv)), x)
    return library_forward(x, weight, conv) if made is None else made


def library_forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    (top, bottom), (left, right) = paddings(x, conv)
    if (top, left) != (bottom, right):
        x = F.pad(x, (0, right - left, 0, bottom - top))
    return torch.conv2d(x, weight, None, conv.stride, (top, left), conv.dilation, conv.groups)


def backward(gradient: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """From rows of gradients: at the input, and of the weights."""
    height, width = output_size(x, conv)
    at = gradient.view(len(x), height, width, gradient.shape[1]).permute(0, 3, 1, 2)
    made = by_ours("input", conv, lambda: grouped_cuda.input_gradient(at, weight, layer_of(x, conv)), x, at)
    change = by_ours("weight", conv, lambda: grouped_cuda.weight_gradient(at, x, layer_of(x, conv)), x, at)
    others = library_backward(at, x, weight, conv, made is None, change is None)
    return others[0] if made is None else made, others[1] if change is None else change


def library_backward(at: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d, *wanted: bool) -> tuple[Any, Any]:
    """What arrives at the input and the weights, as far as wanted."""
    if not any(wanted):
        return None, None
    (top, bottom), (left, right) = paddings(x, conv)
    lopsided = (top, left) != (bottom, right)
    seen = F.pad(x, (0, right - left, 0, bottom - top)) if lopsided else x
    made, change, _ = torch.ops.aten.convolution_backward(
        *(at, seen, weight, None, list(conv.stride), [top, left], list(conv.dilation), False, [0, 0], conv.groups),
        [*wanted, False],
    )
    if lopsided and made is not None:
        made = made[:, :, : x.shape[2], : x.shape[3]].contiguous(memory_format=torch.channels_last)
    return made, change
