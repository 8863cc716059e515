"""Convolutions larger than 1x1: by the library, except where it is slow and our kernels are used.

These are grouped 3x3 convolutions, by the kernels of grouped.cu where they can be compiled. SAME padding is
TensorFlow's, where a layer has it; the library needs a copy of the images for it, our kernels do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.kernels import grouped_cuda
from viaduct.kernels.choices import Signature, find_choice
from viaduct.kernels.sizes import DTYPES
from viaduct.models.padding import SameConv2d, same_padding


def paddings(x: Tensor, conv: nn.Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the padding before and after, of rows and of columns."""
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


def is_supported(conv: nn.Conv2d) -> bool:
    """Return True if our kernels support this layer: 3x3, in groups of 4 to 32 channels, as many out as in."""
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


def uses_own_kernel(direction: str, conv: nn.Conv2d, x: Tensor, *seen: Tensor) -> bool:
    """Return True if the kernels of grouped.cu compute this direction, "forward", "input" or "weight"."""
    if not is_supported(conv) or prefers_library(direction, conv, x):
        return False
    return all(grouped_cuda.can_run(tensor) for tensor in (x, *seen))


def run_own_kernel(
    direction: str, conv: nn.Conv2d, work: Callable[[], Tensor], x: Tensor, *seen: Tensor
) -> Tensor | None:
    """Return what our kernel computes; None: the library has to."""
    return grouped_cuda.try_launch(work, x.device) if uses_own_kernel(direction, conv, x, *seen) else None


def prefers_library(direction: str, conv: nn.Conv2d, x: Tensor) -> bool:
    """Return True if tuning chose the library for a layer that our kernels support; else what was faster on an H200."""
    point = find_choice(f"grouped_{direction}_implementation", implementation_signature(x, conv))
    if point is not None:
        return point["implementation"] == "library"
    pixels = x.shape[0] * x.shape[2] * x.shape[3]
    return conv.stride == (1, 1) and is_library_faster(direction, conv.in_channels // conv.groups, pixels)


def implementation_signature(x: Tensor, conv: nn.Conv2d) -> Signature:
    """Return shape (NHWC), channels of a group, stride, SAME padding or not, padding, and dtype."""
    count, channels, height, width = x.shape
    same, padding = isinstance(conv, SameConv2d), int(conv.padding[0])
    sizes = (count, height, width, channels, channels // conv.groups, conv.stride[0], int(same), padding)
    return (*sizes, DTYPES[x.dtype])


def is_library_faster(direction: str, per_group: int, pixels: int) -> bool:
    """Return True if cuDNN was faster than our kernels on an H200, for layers with stride 1."""
    return per_group == 32 or (direction == "weight" and per_group == 16 and pixels < FEW)


def forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    """`weight` is in the precision of x and lies channels_last."""
    made = run_own_kernel("forward", conv, lambda: grouped_cuda.convolution(x, weight, layer_of(x, conv)), x)
    return library_forward(x, weight, conv) if made is None else made


def library_forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    (top, bottom), (left, right) = paddings(x, conv)
    if (top, left) != (bottom, right):
        x = F.pad(x, (0, right - left, 0, bottom - top))
    return torch.conv2d(x, weight, None, conv.stride, (top, left), conv.dilation, conv.groups)


def backward(gradient: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Return the gradients of input and weights from rows of the output's gradient."""
    height, width = output_size(x, conv)
    at = gradient.view(len(x), height, width, gradient.shape[1]).permute(0, 3, 1, 2)
    made = run_own_kernel("input", conv, lambda: grouped_cuda.input_gradient(at, weight, layer_of(x, conv)), x, at)
    change = run_own_kernel("weight", conv, lambda: grouped_cuda.weight_gradient(at, x, layer_of(x, conv)), x, at)
    others = library_backward(at, x, weight, conv, made is None, change is None)
    return others[0] if made is None else made, others[1] if change is None else change


def library_backward(at: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d, *wanted: bool) -> tuple[Any, Any]:
    """Return the gradients of input and weights, as far as wanted."""
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
