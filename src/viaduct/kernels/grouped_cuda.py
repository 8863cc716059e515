"""Launches of the kernels of grouped.cu: grouped 3x3 convolutions, forward and backward, for bf16 and fp16.

If they cannot be compiled, `can_run` returns False and cuDNN is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from viaduct.kernels.grouped_compiler import CompilerError, CudaError, Kernel, load_or_compile
from viaduct.kernels.sizes import count_blocks, count_multiprocessors, find_sizes, read_shared_memory

# Functions in grouped.cu, and the value of the macro KERNEL that selects each.
KERNELS = {"grouped_convolution": 1, "grouped_convolution_input": 2, "grouped_convolution_weight": 3}
MIN_CAPABILITY = (8, 0)  # the first with asynchronous copies and bf16 matrix products
MAX_WIDTH = 224  # pixels: three rows fit into shared memory, and pixels are counted in 20 bits
PRODUCT_PIXELS = 16  # pixels of one matrix product
RESERVED_SHARED = 1024  # bytes of shared memory that CUDA reserves for each block


@dataclass(frozen=True)
class BlockShape:
    """Work of one thread block."""

    slice: int  # channels that a block computes, 32 or 64
    resident: int  # blocks on a multiprocessor at once
    warps: int = 8
    rows: int = 0  # output rows of a block; 0: as many as fit into shared memory
    images: int = 0  # images of a block that has all their rows; 0: as many as fit

    @property
    def pitch(self) -> int:
        """Bytes from pixel to pixel in shared memory: PITCH in grouped.cu."""
        return self.slice * 2 + 16


WEIGHT_SHAPE = BlockShape(64, 2)


@dataclass(frozen=True)
class Layer:
    """Sizes of a grouped 3x3 convolution."""

    count: int  # images
    height: int
    width: int
    out_height: int
    out_width: int
    channels: int
    per_group: int  # channels of a group, in input and output
    stride: int
    top: int  # padding above
    left: int  # padding to the left

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.count, self.height, self.width, self.out_height, self.out_width, self.channels, self.top, self.left

    def transpose(self) -> Layer:
        """Return the convolution that computes the gradient w.r.t. input from that of the output, for stride 1."""
        sizes = (self.count, self.out_height, self.out_width, self.height, self.width, self.channels, self.per_group)
        return Layer(*sizes, 1, 2 - self.top, 2 - self.left)


def find_block_shape(kernel: str, layer: Layer, dtype: torch.dtype, transposed: bool = False) -> BlockShape:
    """Return the block shape of grouped_convolution, grouped_input_gradient or grouped_weight_gradient."""
    is_weight_gradient = kernel == "grouped_weight_gradient"
    default = WEIGHT_SHAPE if is_weight_gradient else choose_default_block_shape(layer, transposed)
    return find_sizes(kernel, (*layer.sizes, layer.per_group, layer.stride), dtype, default)


def choose_default_block_shape(layer: Layer, transposed: bool = False) -> BlockShape:
    """Return the block shape that was fastest on an H200 at a batch of 256."""
    if layer.per_group == 8 and layer.stride == 1:
        return BlockShape(32, 3) if transposed else BlockShape(64, 3)
    return BlockShape(64, 2)


@dataclass(frozen=True)
class Tile:
    """Division of a layer's rows among blocks, and the input pixels that a block reads."""

    image_rows: int  # output rows of an image, divided among blocks
    out_length: int  # pixels in an output row
    row_length: int  # pixels in an input row
    step: int  # input rows for each output row
    extra_rows: int  # further input rows
    reads_gradient: bool = False  # True if the block also reads the output's gradient

    def count_pixels(self, rows: int, images: int) -> int:
        """Return the pixels in shared memory for a block of these rows and images."""
        pixels = images * (rows * self.step + self.extra_rows) * self.row_length
        if self.reads_gradient:
            pixels += count_blocks(images * rows * self.out_length, PRODUCT_PIXELS) * PRODUCT_PIXELS
        return pixels

    def fit(self, max_pixels: int, block_shape: BlockShape, max_images: int) -> tuple[int, int]:
        """Return rows and images of a block: those of the block shape, or as many as fit, evenly divided."""
        fitting_rows = [rows for rows in range(1, self.image_rows + 1) if self.count_pixels(rows, 1) <= max_pixels]
        strips = count_blocks(self.image_rows, max(fitting_rows, default=1))
        rows = block_shape.rows or count_blocks(self.image_rows, strips)
        if rows < self.image_rows:
            return rows, 1
        fitting_images = [n for n in range(1, max_images + 1) if self.count_pixels(rows, n) <= max_pixels]
        return rows, min(block_shape.images or len(fitting_images), max_images) or 1


def make_window_tile(layer: Layer, reads_gradient: bool = False) -> Tile:
    """Return the tile of a convolution or weight gradient: 3x3 windows of the input."""
    columns = (layer.out_width - 1) * layer.stride + 3
    row_length = count_blocks(columns, 2) * 2 if layer.stride == 2 else columns  # even columns first, then odd ones
    return Tile(layer.out_height, layer.out_width, row_length, layer.stride, 3 - layer.stride, reads_gradient)


def make_square_tile(layer: Layer) -> Tile:
    """Return the tile of an input gradient with stride 2: squares of 2x2 input pixels."""
    down, across = ((size - 1 + pad) // 2 + 1 for size, pad in ((layer.height, layer.top), (layer.width, layer.left)))
    return Tile(down, across, across + 1, 1, 1)


@dataclass(frozen=True)
class Plan:
    """Grid and shared memory of a launch."""

    rows: int  # of a block
    images: int  # of a block
    shared: int  # bytes for each block
    strips: int  # number of groups of rows
    stacks: int  # number of groups of images
    slices: int  # number of groups of channels


def plan_launch(tile: Tile, layer: Layer, block_shape: BlockShape, like: Tensor) -> Plan:
    slices, device = layer.channels // block_shape.slice, like.device
    return make_plan(tile, layer.count, slices, block_shape, count_multiprocessors(device), read_shared_memory(device))


@lru_cache(maxsize=1024)
def make_plan(tile: Tile, count: int, slices: int, block_shape: BlockShape, multiprocessors: int, shared: int) -> Plan:
    """Return the plan for a number of images (`count`) and channel slices."""
    max_pixels = (shared // block_shape.resident - RESERVED_SHARED) // block_shape.pitch
    # The images of a block are limited so that every multiprocessor has work.
    max_images = min(max(1, count * slices // (multiprocessors * block_shape.resident)), count)
    rows, images = tile.fit(max_pixels, block_shape, max_images)
    used = tile.count_pixels(rows, images) * block_shape.pitch
    return Plan(rows, images, used, count_blocks(tile.image_rows, rows), count_blocks(count, images), slices)


@lru_cache
def read_source() -> str:
    """Return the CUDA source of all kernels."""
    folder = Path(__file__).parent
    return (folder / "grouped_ptx.cu").read_text() + (folder / "grouped.cu").read_text()


@cache
def load_kernel(
    name: str, per_group: int, stride: int, transposed: bool, is_half: bool, shape: tuple[int, int, int], device: int
) -> Kernel:
    """Load a kernel from the cache, or compile it. `shape` has slice, resident and warps of a `BlockShape`."""
    width, resident, warps = shape
    defines = {"KERNEL": KERNELS[name], "GROUP": per_group, "STRIDE": stride, "TRANSPOSED": int(transposed)}
    defines |= {"HALF": int(is_half), "SLICE": width, "RESIDENT": resident, "WARPS": warps}
    major, minor = torch.cuda.get_device_capability(device)
    program = (read_source(), tuple(defines.items()), f"sm_{major}{minor}")
    try:
        return Kernel(load_or_compile(*program), name, device)
    except CompilerError:
        raise
    except CudaError:  # the cached file may be damaged
        return Kernel(load_or_compile(*program, recompile=True), name, device)


def find_kernel(name: str, layer: Layer, block_shape: BlockShape, like: Tensor, transposed: bool = False) -> Kernel:
    is_half, device = like.dtype == torch.float16, int(like.device.index)
    sizes = (block_shape.slice, block_shape.resident, block_shape.warps)
    return load_kernel(name, layer.per_group, layer.stride, transposed, is_half, sizes, device)


FAILED_DEVICES: set[torch.device] = set()  # devices on which a launch failed; they are not tried again


@lru_cache
def can_compile(device: int) -> bool:
    """Return True if a typical kernel compiles and loads."""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        return False
    try:
        load_kernel("grouped_convolution", 4, 1, transposed=False, is_half=False, shape=(64, 2, 8), device=device)
    except (CudaError, OSError):
        return False
    return True


def try_launch(launch: Callable[[], Tensor], device: torch.device) -> Tensor | None:
    """Return a kernel's result; warn and return None if it cannot be loaded or launched."""
    try:
        return launch()
    except CudaError as error:
        FAILED_DEVICES.add(device)
        warnings.warn(f"grouped convolutions are left to cuDNN, which is slower: {error}", stacklevel=2)
        return None


def can_run(x: Tensor) -> bool:
    """Return True if the kernels compile and support this dtype, width and layout."""
    is_supported = x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and x.shape[3] <= MAX_WIDTH
    if not is_supported or not x.is_contiguous(memory_format=torch.channels_last) or x.data_ptr() % 16:
        return False
    return x.device not in FAILED_DEVICES and can_compile(int(x.device.index))


def run_convolution(x: Tensor, weight: Tensor, layer: Layer, transposed: bool = False) -> Tensor:
    """Run a convolution; with `transposed`, x is a gradient and the weight is transposed."""
    kernel = "grouped_input_gradient" if transposed else "grouped_convolution"
    block_shape = find_block_shape(kernel, layer, x.dtype, transposed)
    tile, size = make_window_tile(layer), (layer.out_height, layer.out_width)
    return launch_convolution("grouped_convolution", x, weight, layer, block_shape, tile, size, transposed)


def run_input_gradient(gradient: Tensor, weight: Tensor, layer: Layer) -> Tensor:
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    if layer.stride == 1:
        return run_convolution(gradient, weight, layer.transpose(), transposed=True)
    block_shape = find_block_shape("grouped_input_gradient", layer, gradient.dtype)
    tile, size, name = make_square_tile(layer), (layer.height, layer.width), "grouped_convolution_input"
    return launch_convolution(name, gradient, weight, layer, block_shape, tile, size, transposed=True)


def launch_convolution(
    name: str,
    x: Tensor,
    weight: Tensor,
    layer: Layer,
    block_shape: BlockShape,
    tile: Tile,
    size: tuple[int, int],
    transposed: bool,
) -> Tensor:
    """Launch a kernel that computes images of height and width `size` from x."""
    plan = plan_launch(tile, layer, block_shape, x)
    out = torch.empty((layer.count, *size, layer.channels), dtype=x.dtype, device=x.device)
    flat_weight = weight.permute(0, 2, 3, 1).contiguous()  # [channels, 3, 3, per_group]
    find_kernel(name, layer, block_shape, x, transposed).launch(
        (plan.slices, plan.strips, plan.stacks), block_shape.warps * 32, plan.shared,
        [x, flat_weight, out], *layer.sizes, plan.rows, plan.images,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


def count_warps_per_pixel(channels: int, per_group: int) -> int:
    """Return how many warps share a pixel's `channels` in the weight gradient; other warps take other pixels."""
    return channels // (8 if per_group == 32 else 16)


def run_weight_gradient(gradient: Tensor, x: Tensor, layer: Layer) -> Tensor:
    """Return the gradient w.r.t. weight in float32, as [channels, per_group, 3, 3]."""
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    block_shape = find_block_shape("grouped_weight_gradient", layer, x.dtype)
    plan = plan_launch(make_window_tile(layer, reads_gradient=True), layer, block_shape, x)
    resident = count_multiprocessors(x.device) * block_shape.resident // plan.slices
    programs = max(1, min(plan.strips * plan.stacks, resident))
    # One partial sum for each program and group of warps that share the channels of a pixel.
    groups = block_shape.warps // count_warps_per_pixel(block_shape.slice, layer.per_group)
    shape = (programs * groups, layer.channels, 3, 3, layer.per_group)
    parts = torch.empty(shape, dtype=torch.float32, device=x.device)
    find_kernel("grouped_convolution_weight", layer, block_shape, x).launch(
        (plan.slices, programs, 1), block_shape.warps * 32, plan.shared, [x, gradient, parts],
        *layer.sizes, plan.rows, plan.images,
    )  # fmt: skip
    return parts.sum(0).permute(0, 3, 1, 2)
