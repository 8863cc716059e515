"""Convolutions of more than one cell: by the library, but for what it is slow at, which kernels of ours do.

On an H200 these are two ways back of grouped 3x3 convolutions: to the input where the stride is 2, and to the weights
where groups have 4 channels. SAME padding is TensorFlow's, where a layer has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.kernels import grouped_kernels
from viaduct.kernels.sizes import blocks, processors
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


def forward(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    """`weight` is in the precision of x and lies channels_last."""
    (top, bottom), (left, right) = paddings(x, conv)
    if (top, left) != (bottom, right):
        x = F.pad(x, (0, right - left, 0, bottom - top))
    return torch.conv2d(x, weight, None, conv.stride, (top, left), conv.dilation, conv.groups)


def backward(gradient: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """From rows of gradients: at the input, and of the weights."""
    height, width = output_size(x, conv)
    at = gradient.view(len(x), height, width, gradient.shape[1]).permute(0, 3, 1, 2)
    own_input = in_groups(conv) and conv.stride == (2, 2)
    own_weight = in_groups(conv) and conv.in_channels // conv.groups == 4
    made, change = library_backward(at, x, weight, conv, not own_input, not own_weight)
    if own_input:
        made = input_gradient(at, x, weight, conv)
    if own_weight:
        change = weight_gradient(at, x, conv)
    return made, change


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


@dataclass(frozen=True)
class Cut:
    """How a grouped convolution is cut up."""

    width: int  # channels at once
    block: int  # pixels at once
    warps: int
    stages: int
    waves: int = 4  # of programs, where each takes several tiles


BACKWARD = Cut(64, 64, 4, 1)
WEIGHT = Cut(64, 64, 4, 3)


def spread(weight: Tensor, width: int) -> Tensor:
    """For the way back: inputs and outputs have changed places."""
    channels, per_group = weight.shape[:2]
    wide = torch.empty((channels // width, 9, width, width), dtype=weight.dtype, device=weight.device)
    flat = weight.permute(0, 2, 3, 1).contiguous()
    grouped_kernels.spread_kernel[(channels // width, 9)](flat, wide, per_group, width)
    return wide


def input_gradient(gradient: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d, cut: Cut = BACKWARD) -> Tensor:
    count, channels, height, width = x.shape
    (top, _), (left, _) = paddings(x, conv)
    stride = conv.stride[0]
    half = (blocks(height, stride), blocks(width, stride))
    pixels = count * half[0] * half[1]
    out = torch.empty((count, height, width, channels), dtype=x.dtype, device=x.device)
    grouped_kernels.grouped_backward_kernel[(blocks(pixels, cut.block), channels // cut.width, stride * stride)](
        *(gradient, spread(weight, cut.width), out, pixels, height, width, *half, *gradient.shape[2:]),
        *(top, left, channels, stride, cut.width, cut.block),
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return out.permute(0, 3, 1, 2)


def weight_gradient(gradient: Tensor, x: Tensor, conv: nn.Conv2d, cut: Cut = WEIGHT) -> Tensor:
    """In float32."""
    count, channels, height, width = x.shape
    (top, _), (left, _) = paddings(x, conv)
    rows = count * gradient.shape[2] * gradient.shape[3]
    tiles, columns = blocks(rows, cut.block), channels // cut.width
    programs = max(1, min(tiles, processors(x) * cut.waves // (3 * columns)))
    parts = torch.empty((programs, columns, 9, cut.width, cut.width), dtype=torch.float32, device=x.device)
    grouped_kernels.grouped_weight_kernel[(programs, columns, 3)](
        *(x, gradient, parts, rows, height, width, *gradient.shape[2:], top, left, channels, tiles),
        *(conv.stride[0], cut.width, cut.block),
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return gather(parts.sum(0), channels // conv.groups)


def gather(wide: Tensor, per_group: int) -> Tensor:
    """The blocks on the diagonal: [blocks, 9, WIDTH outputs, WIDTH inputs] as [channels, per_group, 3, 3]."""
    columns, _, width, _ = wide.shape
    groups = width // per_group
    cut = wide.view(columns, 9, groups, per_group, groups, per_group)
    own = torch.diagonal(cut, dim1=2, dim2=4)  # [columns, 9, outputs, inputs, groups]
    return own.permute(0, 4, 2, 3, 1).reshape(columns * width, per_group, 3, 3)
