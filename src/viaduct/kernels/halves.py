"""AmoebaNet's factorised reduction: two 1x1 convolutions, of even and of odd pixels, side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from viaduct.kernels import halves_kernels
from viaduct.kernels.bottleneck import weight_gradient
from viaduct.kernels.pooling import as_rows
from viaduct.kernels.sizes import blocks, tile_for
from viaduct.kernels.terms import as_images


class HalvedFunction(torch.autograd.Function):
    """`copies` are the two weights in the precision of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, copies: list[Tensor], *weights: Tensor) -> Tensor:
        seen, flat = gather(x.contiguous(memory_format=torch.channels_last)), [copy.flatten(1) for copy in copies]
        made = x.new_empty((seen.shape[1], len(flat[0]) + len(flat[1])))
        for rows, weight, part in zip(seen, flat, halves(made, flat), strict=True):
            torch.mm(rows, weight.t(), out=part)
        ctx.seen, ctx.flat, ctx.shape, ctx.dtypes = seen, flat, x.shape, [weight.dtype for weight in weights]
        return as_images(made, (x.shape[0], blocks(x.shape[2], 2), blocks(x.shape[3], 2)))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        parts = halves(as_rows(gradient), ctx.flat)
        even, odd = (part @ weight for part, weight in zip(parts, ctx.flat, strict=True))
        changes = [weight_gradient(part, rows)[:, :, None, None] for part, rows in zip(parts, ctx.seen, strict=True)]
        ctx.seen = ctx.flat = None
        made = scatter(even, odd, ctx.shape)
        return made, None, *(change.to(dtype) for change, dtype in zip(changes, ctx.dtypes, strict=True))


def halves(rows: Tensor, flat: list[Tensor]) -> tuple[Tensor, Tensor]:
    return rows[:, : len(flat[0])], rows[:, len(flat[0]) :]


def gather(x: Tensor) -> Tensor:
    """Return [even and odd, pixels, channels]."""
    count, channels, height, width = x.shape
    half = (blocks(height, 2), blocks(width, 2))
    rows = count * half[0] * half[1]
    seen = x.new_empty((2, rows, channels))
    tile = tile_for("gather_halves", rows, channels, x.dtype)
    halves_kernels.gather_kernel[(blocks(rows, tile.rows), blocks(channels, tile.columns))](
        *(x, seen[0], seen[1], rows, height, width, *half, channels, tile.rows, tile.columns), num_warps=tile.warps
    )
    return seen


def scatter(even: Tensor, odd: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Write rows of the halves to images of this shape (NCHW)."""
    count, channels, height, width = shape
    made = even.new_empty((count, height, width, channels))
    rows = count * height * width
    tile = tile_for("scatter_halves", rows, channels, even.dtype)
    halves_kernels.scatter_kernel[(blocks(rows, tile.rows), blocks(channels, tile.columns))](
        *(even, odd, made, rows, height, width, blocks(height, 2), blocks(width, 2), channels, tile.rows, tile.columns),
        num_warps=tile.warps,
    )
    return made.permute(0, 3, 1, 2)
