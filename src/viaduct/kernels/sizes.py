"""How work is cut up for the card."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

MOST_COLUMNS = 1024


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
NEIGHBOURS = (2, 4, 64, 2)


@dataclass(frozen=True)
class Gather:
    """How kernels are cut up that gather something of each channel."""

    height: int
    width: int
    warps: int
    each: int  # programs for a multiprocessor
    registers: int | None = None  # for a thread, at most: so many that these programs fit

    def programs(self, rows_x: Tensor) -> tuple[int, int]:
        """Columns of them, and how many share the rows of one."""
        rows, channels = rows_x.shape
        columns = blocks(channels, self.width)
        return columns, max(1, min(blocks(rows, self.height), processors(rows_x) * self.each // columns))

    @property
    def options(self) -> dict[str, int | None]:
        return {"num_warps": self.warps, "maxnreg": self.registers}


def gather_for(rows_x: Tensor, tensors: int) -> Gather:
    """By the sizes that were quickest on an H200; `tensors` are those that are read. Many small programs have more on
    its way to them; but the last of them adds up what all have left, which is long where few columns share it."""
    numbers, channels = rows_x.numel(), rows_x.shape[1]
    if tensors > 1 and numbers >= 20_000_000:
        return Gather(32, 64, 8, 4, 64)
    if numbers >= (20_000_000 if channels >= 256 else 50_000_000):
        return Gather(32, 64, 4, 6, 80)
    return Gather(32, 64, 4, 4) if channels >= 512 else Gather(64, 64, 8, 2)


def tickets(like: Tensor) -> Tensor:
    """A number for each column of programs, 0 between kernels. Each stream has its own: kernels of one take turns."""
    stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
    return _tickets(like.device, stream)


@lru_cache
def _tickets(device: torch.device, stream: int) -> Tensor:
    return torch.zeros(MOST_COLUMNS, dtype=torch.int32, device=device)


def processors(like: Tensor) -> int:
    return _processors(like.device)


@lru_cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
