"""AmoebaNet's factorised reduction: two 1x1 convolutions, of the even and of the odd pixels, concatenated.

Even pixels have an even row and an even column, odd pixels an odd row and an odd column.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from viaduct.kernels import halves_kernels
from viaduct.kernels.bottleneck import compute_weight_gradient
from viaduct.kernels.pooling import convert_to_rows
from viaduct.kernels.sizes import count_blocks, find_tile
from viaduct.kernels.terms import view_as_images


class FactorisedReductionFunction(torch.autograd.Function):
    """Factorised reduction; `cast_weights` are the two weights in the dtype of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cast_weights: list[Tensor], *weights: Tensor) -> Tensor:
        gathered = gather(x.contiguous(memory_format=torch.channels_last))
        flat_weights = [cast_weight.flatten(1) for cast_weight in cast_weights]
        output = x.new_empty((gathered.shape[1], len(flat_weights[0]) + len(flat_weights[1])))
        for rows, weight, part in zip(gathered, flat_weights, split_columns(output, flat_weights), strict=True):
            torch.mm(rows, weight.t(), out=part)
        ctx.gathered, ctx.flat_weights, ctx.shape = gathered, flat_weights, x.shape
        ctx.dtypes = [weight.dtype for weight in weights]
        return view_as_images(output, (x.shape[0], count_blocks(x.shape[2], 2), count_blocks(x.shape[3], 2)))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        parts = split_columns(convert_to_rows(gradient), ctx.flat_weights)
        even, odd = (part @ weight for part, weight in zip(parts, ctx.flat_weights, strict=True))
        pairs = zip(parts, ctx.gathered, strict=True)
        weight_gradients = [compute_weight_gradient(part, rows)[:, :, None, None] for part, rows in pairs]
        ctx.gathered = ctx.flat_weights = None
        weights = [gradient.to(dtype) for gradient, dtype in zip(weight_gradients, ctx.dtypes, strict=True)]
        return scatter(even, odd, ctx.shape), None, *weights


def split_columns(rows: Tensor, flat_weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the output columns of the first and of the second convolution."""
    return rows[:, : len(flat_weights[0])], rows[:, len(flat_weights[0]) :]


def gather(x: Tensor) -> Tensor:
    """Return the even and the odd pixels of images as rows: [2, pixels, channels]."""
    count, channels, height, width = x.shape
    half = (count_blocks(height, 2), count_blocks(width, 2))
    rows = count * half[0] * half[1]
    gathered = x.new_empty((2, rows, channels))
    tile = find_tile("gather_halves", rows, channels, x.dtype)
    halves_kernels.gather_kernel[(count_blocks(rows, tile.rows), count_blocks(channels, tile.columns))](
        *(x, gathered[0], gathered[1], rows, height, width, *half, channels, tile.rows, tile.columns),
        num_warps=tile.warps,
    )
    return gathered


def scatter(even: Tensor, odd: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return images of this shape (NCHW) from rows of even and odd pixels; the other pixels are 0."""
    count, channels, height, width = shape
    output = even.new_empty((count, height, width, channels))
    rows = count * height * width
    tile = find_tile("scatter_halves", rows, channels, even.dtype)
    halves_kernels.scatter_kernel[(count_blocks(rows, tile.rows), count_blocks(channels, tile.columns))](
        *(even, odd, output, rows, height, width, count_blocks(height, 2), count_blocks(width, 2)),
        *(channels, tile.rows, tile.columns),
        num_warps=tile.warps,
    )
    return output.permute(0, 3, 1, 2)
