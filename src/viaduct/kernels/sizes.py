"""How work is cut up for the card."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def blocks(length: int, block: int) -> int:
    return -(-length // block)


def tile(channels: int) -> tuple[int, int, int]:
    """Rows, columns and warps for kernels that look at each number once."""
    if channels <= 64:
        return 16, 64, 4
    return (16, 128, 4) if channels <= 128 else (8, 256, 4)


# Rows and columns of pixels, channels and warps for kernels that look at a pixel's neighbours, too: these are shared in
# both directions. Eight numbers a thread, so that bytes lie in the same threads as the numbers of two bytes that they
# belong to: with sixteen, each of nine cells would have to change threads through shared memory.
NEIGHBOURS = (4, 8, 64, 8)


def parts_for(rows: int, height: int, columns: int, programs: int) -> tuple[int, int]:
    """Rows for each program, and how many parts that makes: whole tiles, and enough of them to fill the card."""
    wanted = max(1, min(blocks(rows, height), programs // columns))
    share = blocks(blocks(rows, wanted), height) * height
    return share, blocks(rows, share)


def processors(like: Tensor) -> int:
    return _processors(like.device)


@lru_cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
