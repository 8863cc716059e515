"""Launches the kernels of grouped.cu: grouped 3x3 convolutions and their ways back, for bf16 and fp16.

Where they cannot be compiled, `ready` says so, once for each device, and somebody else does the work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from viaduct.kernels.grouped_compiler import FREELY_SHARED, CompilerError, Kernel, Refused, compiled
from viaduct.kernels.sizes import blocks, processors

KERNELS = {
    "grouped_convolution": 1,
    "grouped_convolution_input": 2,
    "grouped_convolution_weight": 3,
}  # as grouped.cu numbers them
OLDEST = (8, 0)  # asynchronous copies and products in bf16
WIDEST = 224  # pictures, of which three rows have room in shared memory, and whose pixels are counted in 20 bits
PRODUCT = 16  # pixels


@dataclass(frozen=True)
class Cut:
    """How the work is cut up. 0: as many as there is room for."""

    slice: int  # channels of a block, 32 or 64
    resident: int  # blocks on a multiprocessor at once
    warps: int = 8
    rows: int = 0  # of a block
    pictures: int = 0  # of a block, where it has whole ones


WEIGHTS = Cut(64, 2)


@dataclass(frozen=True)
class Layer:
    """A convolution at work."""

    count: int
    height: int
    width: int
    out_height: int
    out_width: int
    channels: int
    per_group: int
    stride: int
    top: int
    left: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.count, self.height, self.width, self.out_height, self.out_width, self.channels, self.top, self.left

    def turned(self) -> Layer:
        """With stride 1 the way back to the input is a convolution, too: of the gradient."""
        sizes = (self.count, self.out_height, self.out_width, self.height, self.width, self.channels, self.per_group)
        return Layer(*sizes, 1, 2 - self.top, 2 - self.left)


def cut_for(layer: Layer, turned: bool = False) -> Cut:
    """What was quickest on an H200 at a batch of 256."""
    if layer.per_group == 8 and layer.stride == 1:
        return Cut(32, 3) if turned else Cut(64, 3)
    return Cut(64, 2)


@dataclass(frozen=True)
class Tile:
    """What a block reads, in pixels: so much for each of its rows, and around them."""

    over: int  # rows that all blocks of a picture share
    across: int  # pixels in a row of what it makes
    line: int  # pixels in a row of what it reads
    step: int  # rows read for a row made
    around: int  # rows read besides
    beside: bool = False  # whether it reads what it would make, too: the gradient

    def pixels(self, rows: int, pictures: int) -> int:
        made = blocks(pictures * rows * self.across, PRODUCT) * PRODUCT if self.beside else 0
        return pictures * (rows * self.step + self.around) * self.line + made

    def fit(self, room: int, cut: Cut, most_pictures: int) -> tuple[int, int]:
        """Rows and pictures of a block: as many as have room, all blocks about the same."""
        rows = cut.rows or max([1, *(rows for rows in range(1, self.over + 1) if self.pixels(rows, 1) <= room)])
        rows = min(rows, self.over)
        rows = cut.rows or blocks(self.over, blocks(self.over, rows))
        if rows < self.over:
            return rows, 1
        fitting = [pictures for pictures in range(1, most_pictures + 1) if self.pixels(rows, pictures) <= room]
        return rows, min(cut.pictures or len(fitting), most_pictures) or 1


def window_tile(layer: Layer, beside: bool = False) -> Tile:
    columns = (layer.out_width - 1) * layer.stride + 3
    line = blocks(columns, 2) * 2 if layer.stride == 2 else columns  # even columns first, then odd ones
    return Tile(layer.out_height, layer.out_width, line, layer.stride, 3 - layer.stride, beside)


def square_tile(layer: Layer) -> Tile:
    down, across = ((size - 1 + pad) // 2 + 1 for size, pad in ((layer.height, layer.top), (layer.width, layer.left)))
    return Tile(down, across, across + 1, 1, 1)


@dataclass(frozen=True)
class Plan:
    rows: int
    pictures: int
    shared: int
    strips: int
    stacks: int  # of pictures
    slices: int


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Bytes that the blocks on a multiprocessor have between them, less 1 KB; each needs 1 KB besides."""
    if device.type != "cuda":
        return 227 * 1024  # an H200's
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", FREELY_SHARED))  # torch's stubs do not know it


def plan(tile: Tile, layer: Layer, cut: Cut, like: Tensor) -> Plan:
    return planned(tile, layer.count, layer.channels // cut.slice, cut, processors(like), shared_memory(like.device))


@lru_cache(maxsize=1024)
def planned(tile: Tile, count: int, slices: int, cut: Cut, units: int, shared: int) -> Plan:
    pitch = cut.slice * 2 + 16
    room = (shared // cut.resident - 1024) // pitch
    # No more pictures for a block than leave work for every multiprocessor.
    most = min(max(1, count * slices // (units * cut.resident)), count)
    rows, pictures = tile.fit(room, cut, most)
    pixels = tile.pixels(rows, pictures)
    return Plan(rows, pictures, pixels * pitch, blocks(tile.over, rows), blocks(count, pictures), slices)


@lru_cache
def source() -> str:
    here = Path(__file__).parent
    return (here / "grouped_ptx.cu").read_text() + (here / "grouped.cu").read_text()


@cache
def kernel(
    name: str, per_group: int, stride: int, turned: bool, half: bool, cut: tuple[int, int, int], device: int
) -> Kernel:
    width, resident, warps = cut
    defines = {"KERNEL": KERNELS[name], "GROUP": per_group, "STRIDE": stride, "TURNED": int(turned), "HALF": int(half)}
    defines |= {"SLICE": width, "RESIDENT": resident, "WARPS": warps}
    major, minor = torch.cuda.get_device_capability(device)
    what = (source(), tuple(defines.items()), f"sm_{major}{minor}")
    try:
        return Kernel(compiled(*what), name, device)
    except CompilerError:
        raise
    except Refused:  # what an earlier run has kept may be damaged
        return Kernel(compiled(*what, anew=True), name, device)


def kernel_for(name: str, layer: Layer, cut: Cut, like: Tensor, turned: bool = False) -> Kernel:
    half, device = like.dtype == torch.float16, int(like.device.index)
    sizes = (cut.slice, cut.resident, cut.warps)
    return kernel(name, layer.per_group, layer.stride, turned, half, sizes, device)


GIVEN_UP: set[torch.device] = set()


@lru_cache
def compiles(device: int) -> bool:
    """Tried with one kernel, which the others resemble."""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    try:
        kernel("grouped_convolution", 4, 1, False, False, (64, 2, 8), device)
    except (Refused, OSError):
        return False
    return True


def attempted(work: Callable[[], Tensor], device: torch.device) -> Tensor | None:
    """What a kernel makes; None if it cannot be had after all, and then none of them is asked again."""
    try:
        return work()
    except Refused as error:
        GIVEN_UP.add(device)
        warnings.warn(f"grouped convolutions are left to cuDNN, which is slower: {error}", stacklevel=2)
        return None


def ready(x: Tensor) -> bool:
    """Whether the kernels can be had for such numbers, which lie as they want them."""
    fits = x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and x.shape[3] <= WIDEST
    if not fits or not x.is_contiguous(memory_format=torch.channels_last) or x.data_ptr() % 16:
        return False
    return x.device not in GIVEN_UP and compiles(int(x.device.index))


def flat(weight: Tensor) -> Tensor:
    return weight.permute(0, 2, 3, 1).contiguous()


def convolution(x: Tensor, weight: Tensor, layer: Layer, turned: bool = False, cut: Cut | None = None) -> Tensor:
    cut, size = cut or cut_for(layer, turned), (layer.out_height, layer.out_width)
    return convolved("grouped_convolution", x, weight, layer, cut, window_tile(layer), size, turned)


def input_gradient(gradient: Tensor, weight: Tensor, layer: Layer, cut: Cut | None = None) -> Tensor:
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    if layer.stride == 1:
        return convolution(gradient, weight, layer.turned(), True, cut)
    cut, size = cut or cut_for(layer), (layer.height, layer.width)
    return convolved("grouped_convolution_input", gradient, weight, layer, cut, square_tile(layer), size, True)


def convolved(
    name: str, x: Tensor, weight: Tensor, layer: Layer, cut: Cut, tile: Tile, size: tuple[int, int], turned: bool
) -> Tensor:
    """Pictures of this size, made of x."""
    how = plan(tile, layer, cut, x)
    out = torch.empty((layer.count, *size, layer.channels), dtype=x.dtype, device=x.device)
    kernel_for(name, layer, cut, x, turned).launch(
        (how.slices, how.strips, how.stacks), cut.warps * 32, how.shared, [x, flat(weight), out],
        *layer.sizes, how.rows, how.pictures,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


def weight_gradient(gradient: Tensor, x: Tensor, layer: Layer, cut: Cut | None = None) -> Tensor:
    """In float32, as [channels, per_group, 3, 3]."""
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    cut = cut or WEIGHTS
    how = plan(window_tile(layer, beside=True), layer, cut, x)
    programs = max(1, min(how.strips * how.stacks, processors(x) * cut.resident // how.slices))
    jobs = cut.slice // (8 if layer.per_group == 32 else 16)  # warps that share the channels; the others have pixels
    parts = torch.empty(
        (programs * (cut.warps // jobs), layer.channels, 3, 3, layer.per_group), dtype=torch.float32, device=x.device
    )
    kernel_for("grouped_convolution_weight", layer, cut, x).launch(
        (how.slices, programs, 1), cut.warps * 32, how.shared, [x, gradient, parts],
        *layer.sizes, how.rows, how.pictures,
    )  # fmt: skip
    return parts.sum(0).permute(0, 3, 1, 2)
