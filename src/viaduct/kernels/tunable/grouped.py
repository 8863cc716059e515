"""Grouped 3x3 convolutions in CUDA C++ (grouped.cu) and their gradients. Only a card can run them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import torch.nn.functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from viaduct.kernels import grouped_cuda
from viaduct.kernels.choices import Signature
from viaduct.kernels.grouped_cuda import (
    RESERVED_SHARED,
    WEIGHT_SHAPE,
    BlockShape,
    Layer,
    choose_default_block_shape,
    make_square_tile,
    make_window_tile,
)
from viaduct.kernels.grouped_cuda import Tile as InputTile
from viaduct.kernels.tunable.base import LaunchAndReference, Limits, RandomTensors, Tunable, read_sizes
from viaduct.search_space import Parameter, Point, Space

PARAMETERS = (
    Parameter("slice", (32, 64)),
    Parameter("resident", (1, 2, 3, 4)),
    Parameter("warps", (4, 8, 16)),
    Parameter("rows", (0, 1, 2, 4, 7, 8, 14, 16, 28)),
    Parameter("images", (0, 1, 2, 4, 8)),
)
FORWARD, INPUT, WEIGHT = "grouped_convolution", "grouped_input_gradient", "grouped_weight_gradient"


def read_layer(*sizes: int) -> Layer:
    """Return the layer of these sizes. An input gradient with stride 1 is a convolution, whose sizes they are."""
    count, height, width, out_height, out_width, channels, top, left, per_group, stride = sizes
    return Layer(count, height, width, out_height, out_width, channels, per_group, stride, top, left)


def make_space(kernel: str, signature: Signature, limits: Limits) -> Space:
    """Return the block shapes of a kernel that fit into the device's limits."""
    layer = read_layer(*read_sizes(signature))
    reads_squares = kernel == INPUT and layer.stride == 2
    tile = make_square_tile(layer) if reads_squares else make_window_tile(layer, reads_gradient=kernel == WEIGHT)
    default = WEIGHT_SHAPE if kernel == WEIGHT else choose_default_block_shape(layer, transposed=kernel == INPUT)
    rules = (
        partial(limit_warps, kernel, layer),
        partial(limit_threads, kernel, layer, limits),
        partial(limit_rows, tile, layer),
        partial(limit_shared_memory, tile, limits),
    )
    hints = [asdict(BlockShape(width, resident)) for width in (32, 64) for resident in (2, 3, 4)]
    return Space(PARAMETERS, rules, default=asdict(default), hints=hints)


def limit_warps(kernel: str, layer: Layer, point: Point) -> str | None:
    """Reject slices that do not divide the channels, and warps that do not divide evenly among a slice's channels."""
    width, warps = int(point["slice"]), int(point["warps"])
    if layer.channels % width:
        return f"{layer.channels} channels are not divisible by {width}"
    if kernel == WEIGHT:
        shared_by = grouped_cuda.count_warps_per_pixel(width, layer.per_group)
    else:
        shared_by = width // (32 if layer.per_group <= 8 else 16)
    return f"{warps} warps are not divisible by {shared_by}" if warps % shared_by else None


def limit_threads(kernel: str, layer: Layer, limits: Limits, point: Point) -> str | None:
    """Reject more threads than a multiprocessor has, and threads with too few registers for weights and sums."""
    threads = int(point["warps"]) * 32 * int(point["resident"])
    if threads > limits.threads:
        return f"{threads} threads are more than {limits.threads}"
    needed_forward = 96 if layer.per_group == 32 else 64  # for an input gradient, too
    needed = 112 if kernel == WEIGHT else needed_forward
    available = limits.registers // threads
    return f"{available} registers a thread are fewer than the {needed} it needs" if available < needed else None


def limit_rows(tile: InputTile, layer: Layer, point: Point) -> str | None:
    """Reject more rows or images than there are, and several images unless a block has all their rows."""
    rows, images = int(point["rows"]), int(point["images"])
    if rows > tile.image_rows:
        return f"{rows} rows are more than the {tile.image_rows} there are"
    if images > layer.count:
        return f"{images} images are more than the {layer.count} there are"
    return "several images need all their rows in a block" if images > 1 and 0 < rows < tile.image_rows else None


def limit_shared_memory(tile: InputTile, limits: Limits, point: Point) -> str | None:
    """Reject blocks that need more than their share of shared memory.

    With automatic rows and images a single wide row may use more; then fewer blocks are resident.
    """
    resident, rows, images = int(point["resident"]), int(point["rows"]), int(point["images"])
    limit = limits.shared_memory // resident - RESERVED_SHARED if rows or images else limits.shared_memory
    needed_rows = tile.image_rows if images > 1 else max(rows, 1)
    used = tile.count_pixels(needed_rows, max(images, 1)) * BlockShape(int(point["slice"]), resident).pitch
    return f"{used} bytes of shared memory are more than {limit}" if used > limit else None


def prepare_case(kernel: str, random: RandomTensors, *sizes: int) -> LaunchAndReference:
    """Return a case for a convolution or one of its gradients, with a float64 reference."""
    layer = read_layer(*sizes)
    groups = layer.channels // layer.per_group
    shape = (layer.channels, layer.per_group, 3, 3)
    weight = random.draw_images(*shape) * 0.2
    x = random.draw_images(layer.count, layer.channels, layer.height, layer.width)
    right = (layer.out_width - 1) * layer.stride + 3 - layer.left - layer.width
    bottom = (layer.out_height - 1) * layer.stride + 3 - layer.top - layer.height
    padded = F.pad(x.double(), (layer.left, right, layer.top, bottom))
    if kernel == FORWARD:
        expected = F.conv2d(padded, weight.double(), stride=layer.stride, groups=groups)
        return lambda: [grouped_cuda.run_convolution(x, weight, layer)], lambda: [expected]
    if kernel == INPUT and layer.stride == 1:
        transposed = weight.double().view(groups, layer.per_group, layer.per_group, 3, 3).transpose(1, 2).flatten(0, 1)
        expected = F.conv2d(padded, transposed.flip(2, 3), groups=groups)
        return lambda: [grouped_cuda.run_convolution(x, weight, layer, transposed=True)], lambda: [expected]
    gradient = random.draw_images(layer.count, layer.channels, layer.out_height, layer.out_width)
    if kernel == INPUT:
        doubles = weight.double(), gradient.double()
        full = conv2d_input(padded.shape, *doubles, layer.stride, groups=groups)  # type: ignore[no-untyped-call]
        expected = full[:, :, layer.top :, layer.left :][:, :, : layer.height, : layer.width]
        return lambda: [grouped_cuda.run_input_gradient(gradient, weight, layer)], lambda: [expected]
    options = {"stride": layer.stride, "groups": groups}
    expected = conv2d_weight(padded, shape, gradient.double(), **options)  # type: ignore[no-untyped-call]
    return lambda: [grouped_cuda.run_weight_gradient(gradient, x, layer)], lambda: [expected]


TUNABLES = [Tunable(name, partial(make_space, name), partial(prepare_case, name)) for name in (FORWARD, INPUT, WEIGHT)]
