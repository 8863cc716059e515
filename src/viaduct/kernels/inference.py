"""Layers of inference that no library is fast at, on NVIDIA cards: the 7x7 stem and max pooling.

stem_relu(images, fold_weight(weight, offset, dtype), bias, padding)
max_pool(x, Pool(3, 2, average=False))
"""

from __future__ import annotations

import torch
from torch import Tensor

from viaduct.kernels import pooling_kernels, stem_kernels
from viaduct.kernels.pooling import Pool
from viaduct.kernels.sizes import NEIGHBOURS, blocks
from viaduct.kernels.stem import fold

PIXELS = 128  # that a program of the stem works on


def stem_relu(images_NCHW: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Compute relu(7x7 convolution with stride 2 + bias); the weight as `stem.fold_weight` makes it."""
    folded = fold(images_NCHW, blocks(padding, 2), images_NCHW.dtype)
    count, _, height, width = images_NCHW.shape
    filters = weight.shape[1]
    made = torch.empty((count, height // 2, width // 2, filters), dtype=images_NCHW.dtype, device=images_NCHW.device)
    rows = count * (height // 2) * (width // 2)
    stem_kernels.stem_inference_kernel[(blocks(rows, PIXELS),)](
        *(folded, weight, bias, made, rows, height // 2, width // 2, folded.shape[1], folded.shape[2]),
        *(filters, PIXELS),
        num_warps=4,
        num_stages=3,
    )
    return made.permute(0, 3, 1, 2)


def max_pool(x_NCHW: Tensor, pool: Pool) -> Tensor:
    """Compute the maxima of windows over SAME padding, of images that lie channels_last."""
    x = x_NCHW.contiguous(memory_format=torch.channels_last)
    count, channels, *sizes = x.shape
    shape = (count, *pool.output(*sizes), channels)
    made = torch.empty(shape, dtype=x.dtype, device=x.device)
    tall, wide, columns, warps = NEIGHBOURS
    tiles = count * blocks(shape[1], tall) * blocks(shape[2], wide)
    pooling_kernels.max_pooling_kernel[(tiles, blocks(channels, columns))](
        *(x, made, count * shape[1] * shape[2], *sizes, *shape[1:3], *pool.before(*sizes), channels),
        *(pool.size, pool.stride, tall, wide, columns),
        num_warps=warps,
    )
    return made.permute(0, 3, 1, 2)
