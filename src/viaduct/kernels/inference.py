"""Inference kernels for layers that libraries compute slowly on NVIDIA cards: the 7x7 stem and max pooling.

stem_relu(images, fold_weight(weight, offset, dtype), bias, padding)
max_pool(x, Pool(3, 2, average=False))
"""

from __future__ import annotations

import torch
from torch import Tensor

from viaduct.kernels import pooling_kernels, stem_kernels
from viaduct.kernels.pooling import Pool
from viaduct.kernels.sizes import Loop, count_blocks, find_area, find_sizes
from viaduct.kernels.stem import fold

DEFAULT_STEM = Loop(block=128, warps=4)  # launch sizes without tuning


def stem_relu(images_NCHW: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Compute relu(7x7 convolution with stride 2 + bias); `weight` is the result of `stem.fold_weight`.

    `padding` is that of the convolution above and to the left.
    """
    folded = fold(images_NCHW, count_blocks(padding, 2), images_NCHW.dtype)
    count, _, height, width = images_NCHW.shape
    filters = weight.shape[1]
    output = torch.empty((count, height // 2, width // 2, filters), dtype=images_NCHW.dtype, device=images_NCHW.device)
    rows = count * (height // 2) * (width // 2)
    loop = find_sizes("stem_inference", (count, height // 2, width // 2), images_NCHW.dtype, DEFAULT_STEM)
    stem_kernels.stem_inference_kernel[(count_blocks(rows, loop.block),)](
        *(folded, weight, bias, output, rows, height // 2, width // 2, folded.shape[1], folded.shape[2]),
        *(filters, loop.block),
        num_warps=loop.warps,
        num_stages=loop.stages,
    )
    return output.permute(0, 3, 1, 2)


def max_pool(x_NCHW: Tensor, pool: Pool) -> Tensor:
    """Compute max pooling with SAME padding, channels_last."""
    x = x_NCHW.contiguous(memory_format=torch.channels_last)
    count, channels, *sizes = x.shape
    shape = (count, *pool.output_size(*sizes), channels)
    output = torch.empty(shape, dtype=x.dtype, device=x.device)
    area = find_area("max_pooling", (count, channels, *sizes, pool.size, pool.stride), x.dtype)
    grid = (area.count_tiles(count, *shape[1:3]), count_blocks(channels, area.columns))
    pooling_kernels.pooling_forward_kernel[grid](
        *(x, output, output, count * shape[1] * shape[2], *sizes, *shape[1:3], *pool.padding_before(*sizes), channels),
        *(pool.size, pool.stride, False, False, area.height, area.width, area.columns),  # no average, no argmax
        num_warps=area.warps,
    )
    return output.permute(0, 3, 1, 2)
