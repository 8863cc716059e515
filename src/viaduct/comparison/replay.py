"""Recomputation of some outputs of a convolution or linear layer from its dumped input and weights.

First the stride and padding are found with which the right side's input and weight give the right side's output. Then a
cause, such as a wrong layout or padding, is tried as a changed weight, padding or input: if it applies, the result is
the left side's output.

Suffixes of names are the axes: N example, C channel, H row, W column; O and I are a weight's output and input channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share, rms
from viaduct.comparison.records import Array

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
POSITIONS = 64  # number of output positions that are recomputed, each in all channels
MAX_REPLAY_ERROR = 2e-3  # up to this relative error recomputed numbers count as equal


@dataclass(frozen=True)
class Geometry:
    """Stride, padding before the first row and column, and padding mode of a convolution."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    mode: PaddingMode = "zeros"

    def __str__(self) -> str:
        mode = "" if self.mode == "zeros" else f" of {self.mode}"
        padding = f"{self.padding[0]} rows and {self.padding[1]} columns{mode} before"
        return f"stride {self.stride[0]}x{self.stride[1]}, {padding}"


@dataclass(frozen=True)
class Replay:
    """A layer's input and weight on the right side, sampled outputs of both sides, and the right side's geometry."""

    x_NCHW: Array
    weight_OIHW: Array
    bias: Array
    positions: tuple[Array, Array, Array]  # example, row, column
    outputs: ArrayPair  # at the positions: (position, channel)
    geometry: Geometry
    extent: tuple[int, int]  # rows and columns of the whole output

    def predict(
        self, *, x: Array | None = None, weight: Array | None = None, geometry: Geometry | None = None
    ) -> Array:
        """Return the outputs at the positions, for another input, weight or geometry if one is given."""
        patches = gather_windows(
            self.x_NCHW if x is None else x, self.weight_OIHW.shape[2:], self.positions, geometry or self.geometry
        )
        return apply_kernels(patches, self.weight_OIHW if weight is None else weight) + self.bias

    def explained_share(self, prediction: Array) -> float:
        """Return the share of the difference at the positions that a prediction removes."""
        return explained_share(prediction, self.outputs)


def replay_origin(divergence: Divergence) -> Replay | None:
    """Return the replay of the origin, computed once; None if it is no such layer or no geometry gives its output."""
    if "replay" not in divergence.shared_results:
        divergence.shared_results["replay"] = _replay_origin(divergence)
    replay = divergence.shared_results["replay"]
    return replay if isinstance(replay, Replay) else None


def _replay_origin(divergence: Divergence) -> Replay | None:
    output, x = divergence.load_arrays(), divergence.load_row(divergence.find_first_input())
    weight = divergence.load_row(divergence.find_weight())
    if divergence.role != "output" or output is None or x is None or weight is None:
        return None
    convolution = reshape_to_convolution(x.right, weight.right, output)
    if convolution is None:
        return None
    x_NCHW, weight_OIHW, outputs = convolution
    return solve_geometry(x_NCHW, weight_OIHW, find_bias(divergence, weight_OIHW.shape[0]), outputs)


def reshape_to_convolution(x: Array, weight: Array, outputs: ArrayPair) -> tuple[Array, Array, ArrayPair] | None:
    """Return input, weight and output in the shapes of a 2-D convolution; None if they do not fit one.

    A linear layer becomes a convolution of 1x1 images.
    """
    if weight.ndim == 2 and x.shape[-1] == weight.shape[1] and outputs.left.shape[-1] == weight.shape[0]:
        x, left, right = (array.reshape(-1, array.shape[-1], 1, 1) for array in (x, outputs.left, outputs.right))
        return x, weight[:, :, None, None], ArrayPair(left, right)
    if weight.ndim != 4 or x.ndim != 4 or outputs.left.ndim != 4:
        return None
    fits = outputs.left.shape[1] == weight.shape[0] and x.shape[1] % weight.shape[1] == 0
    return (x, weight, outputs) if fits and x.shape[0] == outputs.left.shape[0] else None


def find_bias(divergence: Divergence, channels: int) -> Array:
    """Return the right side's first parameter with one number for each output channel, or zeros."""
    for row in divergence.find_rows("parameter"):
        arrays = divergence.load_row(row)
        if arrays is not None and arrays.right.shape == (channels,):
            return arrays.right
    return np.zeros(channels)


def solve_geometry(x_NCHW: Array, weight_OIHW: Array, bias: Array, outputs: ArrayPair) -> Replay | None:
    """Return the replay with the geometry that gives the right side's output, or None."""
    extent = outputs.left.shape[2:]
    positions = choose_positions(outputs.left.shape[0], extent)
    sampled = sample_outputs(outputs, positions)
    draft = Replay(x_NCHW, weight_OIHW, bias, positions, sampled, Geometry((1, 1), (0, 0)), (extent[0], extent[1]))
    for geometry in iterate_geometries(draft):
        if rms(draft.predict(geometry=geometry) - sampled.right) <= MAX_REPLAY_ERROR * rms(sampled.right):
            return replace(draft, geometry=geometry)
    return None


def choose_positions(examples: int, extent: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Return random positions of the output, half of them along the border, where paddings differ."""
    rng = np.random.default_rng(1)
    example = rng.integers(0, examples, POSITIONS)
    row, column = rng.integers(0, extent[0], POSITIONS), rng.integers(0, extent[1], POSITIONS)
    eighth = POSITIONS // 8
    row[:eighth], row[eighth : 2 * eighth] = 0, extent[0] - 1
    column[2 * eighth : 3 * eighth], column[3 * eighth : 4 * eighth] = 0, extent[1] - 1
    return example, row, column


def sample_outputs(outputs: ArrayPair, positions: tuple[Array, Array, Array]) -> ArrayPair:
    """Return both outputs at the positions, as (position, channel)."""
    example, row, column = positions
    return ArrayPair(*(side[example, :, row, column] for side in outputs))


def iterate_geometries(replay: Replay) -> Iterator[Geometry]:
    """Yield the possible strides, each with every zero padding smaller than the kernel, near half of it first."""
    height, width = replay.x_NCHW.shape[2:]
    kernel_h, kernel_w = replay.weight_OIHW.shape[2:]
    rows, columns = replay.extent
    # Rounded up for an input that is padded to a multiple of the stride, rounded down for one without padding.
    strides = {(math.ceil(height / rows), math.ceil(width / columns))}
    strides |= {(max(1, height // rows), max(1, width // columns))}
    paddings = [(top, left) for top in range(kernel_h) for left in range(kernel_w)]
    paddings.sort(key=lambda pad: abs(pad[0] - kernel_h // 2) + abs(pad[1] - kernel_w // 2))
    for stride in sorted(strides):
        yield from (Geometry(stride, padding) for padding in paddings)


def gather_windows(
    x_NCHW: Array, kernel: tuple[int, ...], positions: tuple[Array, Array, Array], geometry: Geometry
) -> Array:
    """Return the input window of each position: (position, channel, row, column)."""
    rows = positions[1][:, None] * geometry.stride[0] - geometry.padding[0] + np.arange(kernel[0])
    columns = positions[2][:, None] * geometry.stride[1] - geometry.padding[1] + np.arange(kernel[1])
    height, width = x_NCHW.shape[2:]
    rows, has_row = move_inside(rows, height, geometry.mode)
    columns, has_column = move_inside(columns, width, geometry.mode)
    windows = x_NCHW[positions[0][:, None, None], :, rows[:, :, None], columns[:, None, :]]
    has_value = has_row[:, :, None] & has_column[:, None, :]
    return np.moveaxis(np.where(has_value[..., None], windows, 0.0), 3, 1)


def move_inside(index: Array, size: int, mode: PaddingMode) -> tuple[Array, Array]:
    """Return indices moved inside the image by the padding mode, and a mask that is False where padding is zero."""
    is_inside = (index >= 0) & (index < size)
    if mode == "circular":
        return index % size, np.ones_like(is_inside)
    if mode == "reflect" and size > 1:
        period = 2 * size - 2
        folded = index % period
        return np.where(folded < size, folded, period - folded), np.ones_like(is_inside)
    clipped = np.clip(index, 0, size - 1)
    return clipped, np.ones_like(is_inside) if mode == "replicate" else is_inside


def apply_kernels(patches: Array, weight_OIHW: Array) -> Array:
    """Return the outputs (position, channel) of a grouped convolution."""
    outputs, inputs = weight_OIHW.shape[:2]
    groups = patches.shape[1] // inputs
    parts = []
    for group in range(groups):
        kernel = weight_OIHW[group * outputs // groups : (group + 1) * outputs // groups]
        window = patches[:, group * inputs : (group + 1) * inputs]
        parts.append(window.reshape(len(window), -1) @ kernel.reshape(len(kernel), -1).T)
    return np.concatenate(parts, 1)
