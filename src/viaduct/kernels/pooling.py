"""Max and average pooling with SAME or VALID padding, as autograd functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viaduct.kernels import pooling_kernels
from viaduct.kernels.norm import make_gradient_rows, view_as_rows
from viaduct.kernels.sizes import Area, count_blocks, find_area
from viaduct.models.padding import same_padding


@dataclass(frozen=True)
class Pool:
    """Window, stride and kind of a pool."""

    size: int
    stride: int
    average: bool
    valid_only: bool = False  # True: only windows inside the image (VALID padding)

    def compute_output_size(self, *sizes: int) -> tuple[int, ...]:
        """Return height and width of the output from those of the input."""
        if self.valid_only:
            return tuple((size - self.size) // self.stride + 1 for size in sizes)
        return tuple(count_blocks(size, self.stride) for size in sizes)

    def make_signature(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tuning signature: the input's shape (NCHW), window, stride and kind."""
        return (*shape, self.size, self.stride, int(self.average), int(self.valid_only))

    def compute_padding_before(self, *sizes: int) -> tuple[int, ...]:
        """Return the padding above and to the left."""
        return tuple(0 if self.valid_only else same_padding(size, self.size, self.stride)[0] for size in sizes)


class PoolFunction(torch.autograd.Function):
    """Pooling of channels_last images."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: Pool) -> Tensor:
        area = find_area("pooling_forward", pool.make_signature(tuple(x.shape)), x.dtype)
        y, ctx.argmax = launch_pool(x, pool, area, needs_argmax=not pool.average)
        ctx.shape, ctx.pool = tuple(x.shape), pool
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return backward(convert_to_rows(gradient), ctx.argmax, ctx.shape, ctx.pool), None


def launch_pool(x_NCHW: Tensor, pool: Pool, area: Area, *, needs_argmax: bool) -> tuple[Tensor, Tensor | None]:
    """Return the pooled images and, if needed, the index of each maximum within its window."""
    x = x_NCHW.contiguous(memory_format=torch.channels_last)
    count, channels, *sizes = x.shape
    shape = (count, *pool.compute_output_size(*sizes), channels)
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    argmax = torch.empty(shape, dtype=torch.uint8, device=x.device) if needs_argmax else None
    grid = (area.count_tiles(count, *shape[1:3]), count_blocks(channels, area.columns))
    pooling_kernels.pooling_forward_kernel[grid](
        *(x, y, y if argmax is None else argmax, count * shape[1] * shape[2], *sizes, *shape[1:3]),
        *(*pool.compute_padding_before(*sizes), channels, pool.size, pool.stride, pool.average, needs_argmax),
        *(area.height, area.width, area.columns),
        num_warps=area.warps,
    )
    return y.permute(0, 3, 1, 2), argmax


def backward(gradient: Tensor, argmax: Tensor | None, shape: tuple[int, ...], pool: Pool) -> Tensor:
    """Return the gradient w.r.t. input, as images of this shape (NCHW), from rows of the output's gradient."""
    count, channels, *sizes = shape
    out = torch.empty((count, *sizes, channels), dtype=gradient.dtype, device=gradient.device)
    rows = count * sizes[0] * sizes[1]
    area = find_area("pooling_backward", pool.make_signature(shape), gradient.dtype)
    grid = (area.count_tiles(count, *sizes), count_blocks(channels, area.columns))
    pooling_kernels.pooling_backward_kernel[grid](
        *(gradient, gradient if argmax is None else argmax, out, rows, *sizes, *pool.compute_output_size(*sizes)),
        *(*pool.compute_padding_before(*sizes), channels, gradient.stride(0)),
        *(pool.size, pool.stride, pool.average, area.height, area.width, area.columns),
        num_warps=area.warps,
    )
    return out.permute(0, 3, 1, 2)


def convert_to_rows(x_NCHW: Tensor) -> Tensor:
    """Return images, or a slice of their channels, as [pixels, channels]; copy them only if their layout differs."""
    image, channel, row, pixel = x_NCHW.stride()
    is_dense = channel == 1 and row == pixel * x_NCHW.shape[3] and image == row * x_NCHW.shape[2]
    return view_as_rows(x_NCHW) if is_dense else make_gradient_rows(x_NCHW, x_NCHW.dtype)


def apply_pool(x_NCHW: Tensor, pool: Pool) -> Tensor:
    output: Tensor = PoolFunction.apply(x_NCHW, pool)  # type: ignore[no-untyped-call]
    return output
