"""Max and average pooling over SAME padding, as operations with a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from viaduct.kernels import pooling_kernels
from viaduct.kernels.norm import rows_of
from viaduct.kernels.sizes import blocks, tile
from viaduct.models.padding import same_padding


class PoolFunction(torch.autograd.Function):
    """Pooling of pictures that lie channels_last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, stride: int, average: bool) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        count, channels, height, width = x.shape
        pads = (same_padding(height, size, stride)[0], same_padding(width, size, stride)[0])
        shape = (count, blocks(height, stride), blocks(width, stride), channels)
        y = torch.empty(shape, dtype=x.dtype, device=x.device)
        chosen = y if average else torch.empty(shape, dtype=torch.uint8, device=x.device)
        rows = count * shape[1] * shape[2]
        tall, wide, warps = tile(channels)
        pooling_kernels.forward_kernel[(blocks(rows, tall), blocks(channels, wide))](
            *(x, y, chosen, rows, height, width, shape[1], shape[2], *pads, channels),
            *(size, stride, average, tall, wide),
            num_warps=warps,
        )
        if not average:
            ctx.save_for_backward(chosen)
        ctx.how = (tuple(x.shape), shape, pads, size, stride, average)
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (count, channels, height, width), shape, pads, size, stride, average = ctx.how
        gradient = as_rows(gradient)
        chosen = gradient if average else ctx.saved_tensors[0]
        out = torch.empty((count, height, width, channels), dtype=gradient.dtype, device=gradient.device)
        rows = count * height * width
        tall, wide, warps = tile(channels)
        pooling_kernels.backward_kernel[(blocks(rows, tall), blocks(channels, wide))](
            *(gradient, chosen, out, rows, height, width, shape[1], shape[2], *pads, channels, gradient.stride(0)),
            *(size, stride, average, tall, wide),
            num_warps=warps,
        )
        return out.permute(0, 3, 1, 2), None, None, None


def as_rows(x_NCHW: Tensor) -> Tensor:
    """[pixels, channels] without a copy, also of some of the channels of a larger tensor; else a copy."""
    height, width = x_NCHW.stride(2), x_NCHW.stride(3)
    even = x_NCHW.stride(1) == 1 and height == width * x_NCHW.shape[3] and x_NCHW.stride(0) == height * x_NCHW.shape[2]
    return rows_of(x_NCHW if even else x_NCHW.contiguous(memory_format=torch.channels_last))


def max_pool_same(x_NCHW: Tensor, size: int, stride: int) -> Tensor:
    made: Tensor = PoolFunction.apply(x_NCHW, size, stride, False)  # type: ignore[no-untyped-call]
    return made


def average_pool_same(x_NCHW: Tensor, size: int, stride: int) -> Tensor:
    made: Tensor = PoolFunction.apply(x_NCHW, size, stride, True)  # type: ignore[no-untyped-call]
    return made
