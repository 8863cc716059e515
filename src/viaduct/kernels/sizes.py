"""Launch sizes of the Triton kernels: those that tuning chose (choices.py), else defaults."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from viaduct.kernels.choices import find_choice

MAX_COLUMNS = 1024  # of programs; there is a counter for each (`get_tickets`)
H200_SHARED_MEMORY = 227 * 1024  # bytes for a block
DEFAULT_SHARED_MEMORY = 48 * 1024  # bytes of shared memory that a block has without setting an attribute
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float64: "float64"}
Sizes = TypeVar("Sizes")  # a dataclass of launch sizes


def count_blocks(length: int, block: int) -> int:
    """Return the number of blocks that cover a length."""
    return -(-length // block)


@dataclass(frozen=True)
class Tile:
    """Work of one program of an elementwise kernel: rows of pixels and columns of channels."""

    rows: int
    columns: int
    warps: int


def find_sizes(kernel: str, signature: tuple[int, ...], dtype: torch.dtype, default: Sizes) -> Sizes:
    """Return the tuned sizes of a kernel for this signature and dtype, else the default."""
    point = find_choice(kernel, (*signature, DTYPES[dtype]))
    kind: Any = type(default)
    sizes: Sizes = default if point is None else kind(**point)
    return sizes


def choose_default_tile(channels: int) -> Tile:
    if channels <= 64:
        return Tile(rows=16, columns=64, warps=4)
    return Tile(rows=16, columns=128, warps=4) if channels <= 128 else Tile(rows=8, columns=256, warps=4)


def find_tile(kernel: str, rows: int, channels: int, dtype: torch.dtype) -> Tile:
    """Return the tile of an elementwise kernel over [rows, channels]."""
    return find_sizes(kernel, (rows, channels), dtype, choose_default_tile(channels))


@dataclass(frozen=True)
class Area:
    """Work of one program of a kernel that reads neighbouring pixels: an area of pixels and columns of channels."""

    height: int
    width: int
    columns: int
    warps: int

    def count_tiles(self, images: int, height: int, width: int) -> int:
        """Return the number of areas that cover `images` images of this size."""
        return images * count_blocks(height, self.height) * count_blocks(width, self.width)


# With eight elements, a thread holds the uint8 argmax of its own 16-bit elements. With sixteen, threads would exchange
# all nine window cells through shared memory.
DEFAULT_AREA = Area(height=2, width=4, columns=64, warps=2)


def find_area(kernel: str, signature: tuple[int, ...], dtype: torch.dtype) -> Area:
    return find_sizes(kernel, signature, dtype, DEFAULT_AREA)


@dataclass(frozen=True)
class Loop:
    """Work of one program of a kernel that loops over blocks of rows."""

    block: int  # rows
    warps: int
    waves: int = 1  # programs for each multiprocessor
    stages: int = 3  # of the software pipeline

    def count_programs(self, rows: int, device: torch.device) -> tuple[int, int]:
        """Return the number of blocks of rows, and of the programs that share them."""
        blocks = count_blocks(rows, self.block)
        return blocks, min(blocks, count_multiprocessors(device) * self.waves)


@dataclass(frozen=True)
class ReductionSizes:
    """Tile and number of programs of a kernel that reduces each channel over all rows."""

    height: int  # rows of a tile
    width: int  # channels of a tile
    warps: int
    each: int  # programs for each multiprocessor
    registers: int = 0  # limit for each thread, so that these programs fit; 0: no limit

    def count_programs(self, rows_x: Tensor) -> tuple[int, int]:
        """Return the number of columns of programs, and of programs that share the rows of a column."""
        rows, channels = rows_x.shape
        columns = count_blocks(channels, self.width)
        resident = count_multiprocessors(rows_x.device) * self.each // columns
        return columns, max(1, min(count_blocks(rows, self.height), resident))

    @property
    def options(self) -> dict[str, int | None]:
        """Launch options for Triton."""
        return {"num_warps": self.warps, "maxnreg": self.registers or None}


def choose_default_reduction_sizes(rows: int, channels: int, tensors: int) -> ReductionSizes:
    """Return the sizes that were fastest on an H200; `tensors` is the number of tensors that the kernel reads."""
    elements = rows * channels
    if tensors > 1 and elements >= 20_000_000:
        return ReductionSizes(32, 64, warps=8, each=4, registers=64)
    if elements >= (20_000_000 if channels >= 256 else 50_000_000):
        return ReductionSizes(32, 64, warps=4, each=6, registers=80)
    if channels >= 512:
        return ReductionSizes(32, 64, warps=4, each=4)
    return ReductionSizes(64, 64, warps=8, each=2)


def find_reduction_sizes(kernel: str, rows_x: Tensor, tensors: int) -> ReductionSizes:
    rows, channels = rows_x.shape
    default = choose_default_reduction_sizes(rows, channels, tensors)
    return find_sizes(kernel, (rows, channels, tensors), rows_x.dtype, default)


def get_tickets(like: Tensor) -> Tensor:
    """Return counters, one for each column of programs, that are 0 between kernels; kernels of a stream share them."""
    stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
    return make_tickets(like.device, stream)


@lru_cache
def make_tickets(device: torch.device, stream: int) -> Tensor:
    return torch.zeros(MAX_COLUMNS, dtype=torch.int32, device=device)


@lru_cache
def count_multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache
def read_shared_memory(device: torch.device) -> int:
    """Return the shared memory in bytes that a single block may use on a multiprocessor; without a card an H200's."""
    if device.type != "cuda":
        return H200_SHARED_MEMORY
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", DEFAULT_SHARED_MEMORY))  # not in torch's stubs
