"""Compute some outputs of a convolution or a linear layer again, from its dumped input and weights.

A wrong layout or padding cannot be read off the output, but it can be tried: once stride and padding are found that
give the right side's numbers, each suspicion is a changed weight, padding or input that should give the left side's.
A few dozen places of the output are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.scene import Both, Scene, explained, rms

Array = NDArray[Any]
Edge = Literal["zeros", "reflect", "replicate", "circular"]
PLACES = 64  # of the output that are computed again
FITS = 2e-3  # relative error up to which a replay counts as the same numbers


@dataclass(frozen=True)
class Geometry:
    """Stride, and the cells before the first row and column; what is beyond the edge."""

    stride: tuple[int, int]
    before: tuple[int, int]
    edge: Edge = "zeros"

    def __str__(self) -> str:
        edge = "" if self.edge == "zeros" else f" of {self.edge}"
        return (
            f"stride {self.stride[0]}x{self.stride[1]}, {self.before[0]} rows and {self.before[1]} columns{edge} before"
        )


@dataclass(frozen=True)
class Replay:
    """A layer's input and weights, some places of its output on both sides, and the geometry that gives the right's."""

    x_NCHW: Array
    weight_OIHW: Array
    bias: Array
    places: tuple[Array, Array, Array]  # example, row, column
    outputs: Both  # (place, channel)
    geometry: Geometry
    extent: tuple[int, int]  # rows and columns of the whole output

    def predict(
        self, *, x: Array | None = None, weight: Array | None = None, geometry: Geometry | None = None
    ) -> Array:
        """The outputs at the places, with something changed."""
        patches = gathered(
            self.x_NCHW if x is None else x, self.weight_OIHW.shape[2:], self.places, geometry or self.geometry
        )
        return applied(patches, self.weight_OIHW if weight is None else weight) + self.bias

    def explains(self, prediction: Array) -> float:
        """Share of the difference at the places that a prediction of the left side takes away."""
        return explained(prediction, self.outputs)


def replayed(scene: Scene) -> Replay | None:
    """The origin's layer, if it is one that can be computed again and the replay gives the right side's numbers."""
    if "replay" not in scene.kept:
        scene.kept["replay"] = _replayed(scene)
    found = scene.kept["replay"]
    return found if isinstance(found, Replay) else None


def _replayed(scene: Scene) -> Replay | None:
    bad = scene.bad()
    source = next(iter(scene.of("input", 0)), None)
    x, weight = scene.both(source), scene.both(scene.weight())
    if scene.role != "output" or bad is None or x is None or weight is None or source is None:
        return None
    shaped = as_convolution(x.right, weight.right, bad)
    if shaped is None:
        return None
    x_NCHW, weight_OIHW, outputs = shaped
    return solved(x_NCHW, weight_OIHW, bias_of(scene, weight_OIHW.shape[0]), outputs)


def as_convolution(x: Array, weight: Array, outputs: Both) -> tuple[Array, Array, Both] | None:
    """Input, weight and output of a 2-D convolution; a linear layer is one over pictures of one cell."""
    if weight.ndim == 2 and x.shape[-1] == weight.shape[1] and outputs.left.shape[-1] == weight.shape[0]:
        cells = [part.reshape(-1, part.shape[-1], 1, 1) for part in (x, outputs.left, outputs.right)]
        return cells[0], weight[:, :, None, None], Both(cells[1], cells[2])
    if weight.ndim != 4 or x.ndim != 4 or outputs.left.ndim != 4:
        return None
    fits = outputs.left.shape[1] == weight.shape[0] and x.shape[1] % weight.shape[1] == 0
    return (x, weight, outputs) if fits and x.shape[0] == outputs.left.shape[0] else None


def bias_of(scene: Scene, channels: int) -> Array:
    for row in scene.of("parameter"):
        both = scene.both(row)
        if both is not None and both.right.shape == (channels,):
            return both.right
    return np.zeros(channels)


def solved(x_NCHW: Array, weight_OIHW: Array, bias: Array, outputs: Both) -> Replay | None:
    """With the geometry that gives the right side's numbers; None if none does."""
    extent = outputs.left.shape[2:]
    places = chosen(outputs.left.shape[0], extent)
    there = Both(*(side[places[0], :, places[1], places[2]] for side in outputs))
    draft = Replay(x_NCHW, weight_OIHW, bias, places, there, Geometry((1, 1), (0, 0)), (extent[0], extent[1]))
    scale = rms(there.right)
    for geometry in geometries(draft):
        if rms(draft.predict(geometry=geometry) - there.right) <= FITS * scale:
            return replace(draft, geometry=geometry)
    return None


def chosen(examples: int, extent: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Places of the output: half of them anywhere, half along the border, where paddings differ."""
    draw = np.random.default_rng(1)
    example = draw.integers(0, examples, PLACES)
    row, column = draw.integers(0, extent[0], PLACES), draw.integers(0, extent[1], PLACES)
    quarter = PLACES // 8
    row[:quarter], row[quarter : 2 * quarter] = 0, extent[0] - 1
    column[2 * quarter : 3 * quarter], column[3 * quarter : 4 * quarter] = 0, extent[1] - 1
    return example, row, column


def geometries(replay: Replay) -> Iterator[Geometry]:
    """Every stride and padding that could give an output of this extent, likeliest first."""
    height, width = replay.x_NCHW.shape[2:]
    kernel_h, kernel_w = replay.weight_OIHW.shape[2:]
    strides = {(ratio(height, replay.extent[0]), ratio(width, replay.extent[1]))}
    strides |= {(max(1, height // replay.extent[0]), max(1, width // replay.extent[1]))}
    befores = [(top, left) for top in range(kernel_h) for left in range(kernel_w)]
    befores.sort(key=lambda pad: abs(pad[0] - kernel_h // 2) + abs(pad[1] - kernel_w // 2))
    for stride in sorted(strides):
        yield from (Geometry(stride, before) for before in befores)


def ratio(size: int, extent: int) -> int:
    return max(1, math.ceil(size / extent))


def gathered(x_NCHW: Array, kernel: tuple[int, ...], places: tuple[Array, Array, Array], geometry: Geometry) -> Array:
    """The window under each place: (place, channel, row, column)."""
    rows = places[1][:, None] * geometry.stride[0] - geometry.before[0] + np.arange(kernel[0])
    columns = places[2][:, None] * geometry.stride[1] - geometry.before[1] + np.arange(kernel[1])
    height, width = x_NCHW.shape[2:]
    rows_in, rows_real = inside(rows, height, geometry.edge)
    columns_in, columns_real = inside(columns, width, geometry.edge)
    windows = x_NCHW[places[0][:, None, None], :, rows_in[:, :, None], columns_in[:, None, :]]
    real = rows_real[:, :, None] & columns_real[:, None, :]
    return np.moveaxis(np.where(real[..., None], windows, 0.0), 3, 1)


def inside(index: Array, size: int, edge: Edge) -> tuple[Array, Array]:
    """Indexes brought into the picture, and where that gives a number to be used."""
    real = (index >= 0) & (index < size)
    if edge == "circular":
        return index % size, np.ones_like(real)
    if edge == "reflect" and size > 1:
        period = 2 * size - 2
        folded = np.abs((index + period) % period)
        return np.where(folded < size, folded, period - folded), np.ones_like(real)
    clipped = np.clip(index, 0, size - 1)
    return clipped, np.ones_like(real) if edge == "replicate" else real


def applied(patches: Array, weight_OIHW: Array) -> Array:
    """Windows times kernels, group by group."""
    outputs, inputs = weight_OIHW.shape[:2]
    groups = patches.shape[1] // inputs
    parts = []
    for group in range(groups):
        kernel = weight_OIHW[group * outputs // groups : (group + 1) * outputs // groups]
        window = patches[:, group * inputs : (group + 1) * inputs]
        parts.append(window.reshape(len(window), -1) @ kernel.reshape(len(kernel), -1).T)
    return np.concatenate(parts, 1)
