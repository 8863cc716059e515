"""Stem for large images as one operation: 7x7 convolution with stride 2, batch norm, ReLU, 3x3 max pool with stride 2.

"Folded" images have blocks of 2x2 pixels as pixels of 16 channels, and "folded" weights fit them (stem_kernels.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import stem_kernels
from viaduct.kernels.norm import Norm, Parts, Sums, combine_parts, sum_parts, view_as_rows
from viaduct.kernels.sizes import Loop, count_blocks, find_sizes

# Launch sizes of the kernels if they were not tuned.
CONVOLUTION = Loop(block=128, warps=4, waves=2)
POOL = Loop(block=16, warps=4)
SUMS = Loop(block=32, warps=4, waves=8)
INPUT = Loop(block=8, warps=2)
WEIGHT = Loop(block=64, warps=4)


def fold(images_NCHW: Tensor, before: int, dtype: torch.dtype) -> Tensor:
    """Return images of even height and width as blocks of 2x2 pixels: [images, height / 2 + 3, width / 2 + 3, 16].

    `before` blocks of zeros are added above and to the left, 3 - `before` below and to the right.
    """
    count, _, height, width = images_NCHW.shape
    shape = (count, height // 2 + 3, width // 2 + 3, 16)
    folded = torch.empty(shape, dtype=dtype, device=images_NCHW.device)
    pixels = count * shape[1] * shape[2]
    images = images_NCHW.contiguous(memory_format=torch.channels_last)
    grid = (count_blocks(pixels, 128),)
    stem_kernels.fold_kernel[grid](images, folded, pixels, height, width, *shape[1:3], before, 128)
    return folded


def fold_weight(weight: Tensor, offset: int, dtype: torch.dtype) -> Tensor:
    """Return a [filters, 3, 7, 7] weight in the layout of the matrix product: [256, filters].

    `offset` is the row and column of the 7x7 weight in a window of 8x8 pixels: 2 * before - padding. The 256 are 4 rows
    and 4 columns of blocks with 16 channels each.
    """
    filters = weight.shape[0]
    window = weight.new_zeros((filters, 3, 8, 8))
    window[:, :, offset : offset + 7, offset : offset + 7] = weight
    folded = window.view(filters, 3, 4, 2, 4, 2).permute(2, 4, 3, 5, 1, 0).reshape(4, 4, 12, filters)
    return torch.nn.functional.pad(folded, (0, 0, 0, 4)).reshape(256, filters).to(dtype).contiguous()


def unfold_weight(folded: Tensor, offset: int) -> Tensor:
    """Return a folded [filters, 256] weight gradient as [filters, 3, 7, 7]."""
    filters = folded.shape[0]
    blocks = folded.view(filters, 4, 4, 16)[..., :12].reshape(filters, 4, 4, 2, 2, 3)
    window = blocks.permute(0, 5, 1, 3, 2, 4).reshape(filters, 3, 8, 8)
    return window[:, :, offset : offset + 7, offset : offset + 7].contiguous()


class StemFunction(torch.autograd.Function):
    """Stem as one operation, without a gradient w.r.t. the images."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor,
        layer: nn.BatchNorm2d, padding: int, pool_padding: int, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        before = count_blocks(padding, 2)
        folded = fold(images, before, dtype)
        size = Size(len(images), images.shape[2] // 2, images.shape[3] // 2, weight.shape[0], pool_padding)
        x, parts = convolve(folded, fold_weight(weight, 2 * before - padding, dtype), layer.running_mean, size)
        norm = combine_parts(parts, size.rows, layer)
        pooled, argmax, max_input = pool(x, norm, size)
        ctx.save_for_backward(folded, x, argmax, max_input, norm.mean, norm.inverse_deviation, norm.scale, norm.shift)
        ctx.size, ctx.offset, ctx.dtype = size, 2 * before - padding, weight.dtype
        return pooled.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        folded, x, argmax, max_input, *norm_tensors = ctx.saved_tensors
        norm = Norm(*norm_tensors)
        gradient = view_as_rows(gradient.contiguous(memory_format=torch.channels_last))
        sums = sum_window_gradients(gradient, argmax, max_input, norm)
        norm_gradient = compute_input_gradient(gradient, argmax, x, norm, sums, ctx.size)
        weight = unfold_weight(compute_weight_gradient(norm_gradient, folded, ctx.size), ctx.offset)
        return None, weight.to(ctx.dtype), sums.product, sums.total, *[None] * 4


@dataclass(frozen=True)
class Size:
    """Size of the convolution's output, and the pool's padding."""

    count: int  # images
    height: int
    width: int
    filters: int
    pool_padding: int  # above and to the left

    @property
    def rows(self) -> int:
        return self.count * self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.count, self.height, self.width

    @property
    def pooled_size(self) -> tuple[int, int]:
        return self.height // 2, self.width // 2


def convolve(folded: Tensor, weight: Tensor, pivot: Tensor | None, size: Size) -> tuple[Tensor, Parts]:
    """Return the convolution's output as rows, and its partial statistics relative to `pivot`."""
    loop = find_sizes("stem_convolution", size.shape, folded.dtype, CONVOLUTION)
    tiles, programs = loop.count_programs(size.rows, folded.device)
    x = torch.empty((size.rows, size.filters), dtype=folded.dtype, device=folded.device)
    parts = Parts.empty(programs, size.filters, folded)
    pivots = torch.zeros(size.filters, device=folded.device) if pivot is None else pivot
    stem_kernels.stem_forward_kernel[(programs,)](
        *(folded, weight, pivots, x, parts.means, parts.squared_deviations, parts.counts),
        *(size.rows, size.height, size.width),
        *(folded.shape[1], folded.shape[2], tiles, size.filters, loop.block),
        num_warps=loop.warps,
        num_stages=loop.stages,
    )
    return x, parts


def pool(x: Tensor, norm: Norm, size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pooled images, the index of each maximum within its window, and its value before the norm."""
    pooled = torch.empty((size.count, *size.pooled_size, size.filters), dtype=x.dtype, device=x.device)
    argmax, max_input = torch.empty_like(pooled, dtype=torch.uint8), torch.empty_like(pooled)
    rows = size.rows // 4
    loop = find_sizes("stem_pool", size.shape, x.dtype, POOL)
    stem_kernels.pool_forward_kernel[(count_blocks(rows, loop.block),)](
        *(x, norm.scale, norm.shift, pooled, argmax, max_input, rows, size.height, size.width, *size.pooled_size),
        *(size.pool_padding, size.filters, loop.block),
        num_warps=loop.warps,
    )
    return pooled, argmax, max_input


def sum_window_gradients(gradient: Tensor, argmax: Tensor, max_input: Tensor, norm: Norm) -> Sums:
    """Return the sums of the gradient w.r.t. the norm's output; `gradient` is that of the pool's output."""
    rows, filters = gradient.shape
    loop = find_sizes("stem_sums", (rows,), gradient.dtype, SUMS)
    tiles, programs = loop.count_programs(rows, gradient.device)
    table = torch.empty((2, programs, filters), dtype=torch.float32, device=gradient.device)
    stem_kernels.stem_sums_kernel[(programs,)](
        *(gradient, argmax, max_input, norm.mean, norm.inverse_deviation, table[0], table[1]),
        *(rows, tiles, filters, loop.block),
        num_warps=loop.warps,
    )
    return sum_parts(table)


def compute_input_gradient(gradient: Tensor, argmax: Tensor, x: Tensor, norm: Norm, sums: Sums, size: Size) -> Tensor:
    """Return the gradient w.r.t. the norm's input; `gradient` is that of the pool's output."""
    out = torch.empty_like(x)
    # One more block of 2x2 pixels in each direction, because the pool's windows may begin in the padding.
    blocks = size.count * (size.height // 2 + 1) * (size.width // 2 + 1)
    loop = find_sizes("stem_input", size.shape, x.dtype, INPUT)
    stem_kernels.stem_input_gradient_kernel[(count_blocks(blocks, loop.block),)](
        *(gradient, argmax, x, norm.mean, norm.inverse_deviation, norm.scale, sums.total, sums.product, out),
        *(blocks, size.rows),
        *(size.height, size.width, *size.pooled_size, size.pool_padding, size.filters, loop.block),
        num_warps=loop.warps,
    )
    return out


def compute_weight_gradient(norm_gradient: Tensor, folded: Tensor, size: Size) -> Tensor:
    """Return the gradient w.r.t. the folded weight, [filters, 256]."""
    loop = find_sizes("stem_weight", size.shape, norm_gradient.dtype, WEIGHT)
    tiles, programs = loop.count_programs(size.rows, norm_gradient.device)
    parts = torch.empty((programs, size.filters, 256), dtype=torch.float32, device=norm_gradient.device)
    stem_kernels.stem_weight_gradient_kernel[(programs, 4)](
        *(norm_gradient, folded, parts, size.rows, size.height, size.width, folded.shape[1], folded.shape[2], tiles),
        *(size.filters, loop.block),
        num_warps=loop.warps,
        num_stages=loop.stages,
    )
    return parts.sum(0)
