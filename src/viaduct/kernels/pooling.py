"""Max and average pooling, over SAME padding or whole windows only, as operations with a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viaduct.kernels import pooling_kernels
from viaduct.kernels.norm import gradient_rows, rows_of
from viaduct.kernels.sizes import NEIGHBOURS, blocks
from viaduct.models.padding import same_padding


@dataclass(frozen=True)
class Pool:
    """What a window is, and what becomes of it. `whole`: only windows that lie inside the picture."""

    size: int
    stride: int
    average: bool
    whole: bool = False

    def output(self, *sizes: int) -> tuple[int, ...]:
        if self.whole:
            return tuple((size - self.size) // self.stride + 1 for size in sizes)
        return tuple(blocks(size, self.stride) for size in sizes)

    def before(self, *sizes: int) -> tuple[int, ...]:
        """Cells of padding above and to the left."""
        return tuple(0 if self.whole else same_padding(size, self.size, self.stride)[0] for size in sizes)


class PoolFunction(torch.autograd.Function):
    """Pooling of pictures that lie channels_last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: Pool) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        count, channels, *sizes = x.shape
        shape = (count, *pool.output(*sizes), channels)
        y = torch.empty(shape, dtype=x.dtype, device=x.device)
        chosen = y if pool.average else torch.empty(shape, dtype=torch.uint8, device=x.device)
        rows = count * shape[1] * shape[2]
        tall, wide, columns, warps = NEIGHBOURS
        tiles = count * blocks(shape[1], tall) * blocks(shape[2], wide)
        pooling_kernels.pooling_forward_kernel[(tiles, blocks(channels, columns))](
            *(x, y, chosen, rows, *sizes, *shape[1:3], *pool.before(*sizes), channels),
            *(pool.size, pool.stride, pool.average, tall, wide, columns),
            num_warps=warps,
        )
        ctx.chosen, ctx.shape, ctx.pool = None if pool.average else chosen, tuple(x.shape), pool
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return backward(as_rows(gradient), ctx.chosen, ctx.shape, ctx.pool), None


def backward(gradient: Tensor, chosen: Tensor | None, shape: tuple[int, ...], pool: Pool) -> Tensor:
    """From rows of gradients behind the pool, those before it, as pictures of this shape (NCHW)."""
    count, channels, *sizes = shape
    out = torch.empty((count, *sizes, channels), dtype=gradient.dtype, device=gradient.device)
    rows = count * sizes[0] * sizes[1]
    tall, wide, columns, warps = NEIGHBOURS
    tiles = count * blocks(sizes[0], tall) * blocks(sizes[1], wide)
    pooling_kernels.pooling_backward_kernel[(tiles, blocks(channels, columns))](
        *(gradient, gradient if chosen is None else chosen, out, rows, *sizes, *pool.output(*sizes)),
        *(
            *pool.before(*sizes),
            channels,
            gradient.stride(0),
            pool.size,
            pool.stride,
            pool.average,
            tall,
            wide,
            columns,
        ),
        num_warps=warps,
    )
    return out.permute(0, 3, 1, 2)


def as_rows(x_NCHW: Tensor) -> Tensor:
    """[pixels, channels] without a copy, also of some of the channels of a larger tensor; else a copy."""
    height, width = x_NCHW.stride(2), x_NCHW.stride(3)
    even = x_NCHW.stride(1) == 1 and height == width * x_NCHW.shape[3] and x_NCHW.stride(0) == height * x_NCHW.shape[2]
    return rows_of(x_NCHW) if even else gradient_rows(x_NCHW, x_NCHW.dtype)


def pooled(x_NCHW: Tensor, pool: Pool) -> Tensor:
    made: Tensor = PoolFunction.apply(x_NCHW, pool)  # type: ignore[no-untyped-call]
    return made


def max_pool_same(x_NCHW: Tensor, size: int, stride: int) -> Tensor:
    return pooled(x_NCHW, Pool(size, stride, average=False))


def average_pool_same(x_NCHW: Tensor, size: int, stride: int) -> Tensor:
    return pooled(x_NCHW, Pool(size, stride, average=True))
