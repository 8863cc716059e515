"""Launch the kernels of grouped.cu: grouped 3x3 convolutions, forward and backward, for bf16 and fp16.

Where they cannot be compiled, `can_run` returns False, and the library does the work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from viaduct.kernels.choices import find_choice
from viaduct.kernels.grouped_compiler import FREELY_SHARED, CompilerError, Kernel, Refused, load_or_compile
from viaduct.kernels.sizes import DTYPES, blocks, processors

KERNELS = {
    "grouped_convolution": 1,
    "grouped_convolution_input": 2,
    "grouped_convolution_weight": 3,
}  # as grouped.cu numbers them
OLDEST = (8, 0)  # asynchronous copies and products in bf16
WIDEST = 224  # columns of an image: three rows fit into shared memory, and pixels are counted in 20 bits
PRODUCT = 16  # pixels


@dataclass(frozen=True)
class Cut:
    """How the work is cut up. 0: as many as there is room for."""

    slice: int  # channels of a block, 32 or 64
    resident: int  # blocks on a multiprocessor at once
    warps: int = 8
    rows: int = 0  # of a block
    images: int = 0  # of a block, where it has whole ones


WEIGHTS = Cut(64, 2)


@dataclass(frozen=True)
class Layer:
    """A convolution and its sizes."""

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

    def transpose(self) -> Layer:
        """Return the convolution of the gradient that computes the input's gradient, with stride 1."""
        sizes = (self.count, self.out_height, self.out_width, self.height, self.width, self.channels, self.per_group)
        return Layer(*sizes, 1, 2 - self.top, 2 - self.left)


def cut_for(kernel: str, layer: Layer, dtype: torch.dtype, turned: bool = False) -> Cut:
    """Return how tuning cuts up this work, else the default."""
    point = find_choice(kernel, (*layer.sizes, layer.per_group, layer.stride, DTYPES[dtype]))
    if point is not None:
        return Cut(**point)  # type: ignore[arg-type]
    return WEIGHTS if kernel == "grouped_weight_gradient" else default_cut(layer, turned)


def default_cut(layer: Layer, turned: bool = False) -> Cut:
    """Return what was fastest on an H200 at a batch of 256."""
    if layer.per_group == 8 and layer.stride == 1:
        return Cut(32, 3) if turned else Cut(64, 3)
    return Cut(64, 2)


@dataclass(frozen=True)
class Tile:
    """Pixels that a block reads: for each of its rows, and around them."""

    over: int  # rows that all blocks of an image share
    across: int  # pixels in a row of what it makes
    row_length: int  # pixels in a row of what it reads
    step: int  # rows read for a row made
    around: int  # rows read besides
    beside: bool = False  # whether it reads what it would make, too: the gradient

    def pixels(self, rows: int, images: int) -> int:
        made = blocks(images * rows * self.across, PRODUCT) * PRODUCT if self.beside else 0
        return images * (rows * self.step + self.around) * self.row_length + made

    def fit(self, room: int, cut: Cut, max_images: int) -> tuple[int, int]:
        """Return rows and images of a block: as many as have room, all blocks about the same."""
        rows = cut.rows or max([1, *(rows for rows in range(1, self.over + 1) if self.pixels(rows, 1) <= room)])
        rows = min(rows, self.over)
        rows = cut.rows or blocks(self.over, blocks(self.over, rows))
        if rows < self.over:
            return rows, 1
        fitting = [images for images in range(1, max_images + 1) if self.pixels(rows, images) <= room]
        return rows, min(cut.images or len(fitting), max_images) or 1


def window_tile(layer: Layer, beside: bool = False) -> Tile:
    columns = (layer.out_width - 1) * layer.stride + 3
    row_length = blocks(columns, 2) * 2 if layer.stride == 2 else columns  # even columns first, then odd ones
    return Tile(layer.out_height, layer.out_width, row_length, layer.stride, 3 - layer.stride, beside)


def square_tile(layer: Layer) -> Tile:
    down, across = ((size - 1 + pad) // 2 + 1 for size, pad in ((layer.height, layer.top), (layer.width, layer.left)))
    return Tile(down, across, across + 1, 1, 1)


@dataclass(frozen=True)
class Plan:
    rows: int
    images: int
    shared: int
    strips: int
    stacks: int  # of images
    slices: int


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Return the bytes that the blocks on a multiprocessor share, less 1 KB; each needs 1 KB besides."""
    if device.type != "cuda":
        return 227 * 1024  # an H200's
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", FREELY_SHARED))  # torch's stubs do not know it


def plan(tile: Tile, layer: Layer, cut: Cut, like: Tensor) -> Plan:
    return make_plan(tile, layer.count, layer.channels // cut.slice, cut, processors(like), shared_memory(like.device))


@lru_cache(maxsize=1024)
def make_plan(tile: Tile, count: int, slices: int, cut: Cut, units: int, shared: int) -> Plan:
    pitch = cut.slice * 2 + 16
    room = (shared // cut.resident - 1024) // pitch
    # No more images for a block than leave work for every multiprocessor.
    most = min(max(1, count * slices // (units * cut.resident)), count)
    rows, images = tile.fit(room, cut, most)
    pixels = tile.pixels(rows, images)
    return Plan(rows, images, pixels * pitch, blocks(tile.over, rows), blocks(count, images), slices)


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
        return Kernel(load_or_compile(*what), name, device)
    except CompilerError:
        raise
    except Refused:  # what an earlier run has kept may be damaged
        return Kernel(load_or_compile(*what, anew=True), name, device)


def kernel_for(name: str, layer: Layer, cut: Cut, like: Tensor, turned: bool = False) -> Kernel:
    half, device = like.dtype == torch.float16, int(like.device.index)
    sizes = (cut.slice, cut.resident, cut.warps)
    return kernel(name, layer.per_group, layer.stride, turned, half, sizes, device)


GIVEN_UP: set[torch.device] = set()


@lru_cache
def can_compile(device: int) -> bool:
    """Return True if a kernel, which the others resemble, compiles and loads."""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    try:
        kernel("grouped_convolution", 4, 1, False, False, (64, 2, 8), device)
    except (Refused, OSError):
        return False
    return True


def try_launch(work: Callable[[], Tensor], device: torch.device) -> Tensor | None:
    """Return what a kernel computes; None if it cannot be loaded, and then no other is tried again."""
    try:
        return work()
    except Refused as error:
        GIVEN_UP.add(device)
        warnings.warn(f"grouped convolutions are left to cuDNN, which is slower: {error}", stacklevel=2)
        return None


def can_run(x: Tensor) -> bool:
    """Return True if the kernels compile and support this dtype, width and layout."""
    fits = x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and x.shape[3] <= WIDEST
    if not fits or not x.is_contiguous(memory_format=torch.channels_last) or x.data_ptr() % 16:
        return False
    return x.device not in GIVEN_UP and can_compile(int(x.device.index))


def flatten_weight(weight: Tensor) -> Tensor:
    return weight.permute(0, 2, 3, 1).contiguous()


def convolution(x: Tensor, weight: Tensor, layer: Layer, turned: bool = False, cut: Cut | None = None) -> Tensor:
    kernel = "grouped_input_gradient" if turned else "grouped_convolution"
    cut, size = cut or cut_for(kernel, layer, x.dtype, turned), (layer.out_height, layer.out_width)
    return launch_convolution("grouped_convolution", x, weight, layer, cut, window_tile(layer), size, turned)


def input_gradient(gradient: Tensor, weight: Tensor, layer: Layer, cut: Cut | None = None) -> Tensor:
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    if layer.stride == 1:
        return convolution(gradient, weight, layer.transpose(), True, cut)
    cut = cut or cut_for("grouped_input_gradient", layer, gradient.dtype)
    size = (layer.height, layer.width)
    return launch_convolution("grouped_convolution_input", gradient, weight, layer, cut, square_tile(layer), size, True)


def launch_convolution(
    name: str, x: Tensor, weight: Tensor, layer: Layer, cut: Cut, tile: Tile, size: tuple[int, int], turned: bool
) -> Tensor:
    """Launch a kernel that computes images of this size from x."""
    how = plan(tile, layer, cut, x)
    out = torch.empty((layer.count, *size, layer.channels), dtype=x.dtype, device=x.device)
    kernel_for(name, layer, cut, x, turned).launch(
        (how.slices, how.strips, how.stacks), cut.warps * 32, how.shared, [x, flatten_weight(weight), out],
        *layer.sizes, how.rows, how.images,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


def weight_gradient(gradient: Tensor, x: Tensor, layer: Layer, cut: Cut | None = None) -> Tensor:
    """Return the gradient in float32, as [channels, per_group, 3, 3]."""
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    cut = cut or cut_for("grouped_weight_gradient", layer, x.dtype)
    how = plan(window_tile(layer, beside=True), layer, cut, x)
    programs = max(1, min(how.strips * how.stacks, processors(x) * cut.resident // how.slices))
    jobs = cut.slice // (8 if layer.per_group == 32 else 16)  # warps that share the channels; the others have pixels
    parts = torch.empty(
        (programs * (cut.warps // jobs), layer.channels, 3, 3, layer.per_group), dtype=torch.float32, device=x.device
    )
    kernel_for("grouped_convolution_weight", layer, cut, x).launch(
        (how.slices, programs, 1), cut.warps * 32, how.shared, [x, gradient, parts],
        *layer.sizes, how.rows, how.images,
    )  # fmt: skip
    return parts.sum(0).permute(0, 3, 1, 2)
