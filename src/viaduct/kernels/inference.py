"""Inference kernels for layers that libraries compute slowly on NVIDIA cards: the 7x7 stem and max pooling.

    stem_relu(images, fold_weight(weight, offset, dtype), bias, padding)
    max_pool(x, Pool(3, 2, average=False))

stem.py explains the layout of the stem's images and weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from viaduct.kernels import stem_kernels
from viaduct.kernels.pooling import Pool, launch_pool
from viaduct.kernels.sizes import Loop, count_blocks, find_area, find_sizes
from viaduct.kernels.stem import fold

DEFAULT_STEM = Loop(block=128, warps=4)  # launch sizes if the kernel was not tuned


def stem_relu(images_NCHW: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Compute relu(7x7 convolution with stride 2 + bias) of images with an even height and width.

    `weight` is the result of `stem.fold_weight`, `padding` that of the convolution above and to the left.
    """
    folded = fold(images_NCHW, before=count_blocks(padding, 2), dtype=images_NCHW.dtype)
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
    """Compute max pooling with SAME padding, channels_last, without the argmax that training needs."""
    area = find_area("max_pooling", (*x_NCHW.shape, pool.size, pool.stride), x_NCHW.dtype)
    return launch_pool(x_NCHW, pool, area, needs_argmax=False)[0]
