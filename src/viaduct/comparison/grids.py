"""Grids of numbers: those of a floating-point format, and those with equal steps, as of quantised numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from viaduct.comparison.tensors import Array

MIN_VALUES = 5  # distinct values; fewer may lie on a grid of equal steps by chance
MAX_VALUES = 1 << 16  # distinct values; a tensor with more is not searched for a grid
NEAR = 0.02  # allowed distance of a value from the grid, in steps
STORAGE_ERROR = 2.0**-22  # relative error of storing step * number as float32


@dataclass(frozen=True)
class Grid:
    """A floating-point format by its fraction bits, its smallest normal exponent and its largest number."""

    name: str
    bits: int  # of the fraction, without the leading one
    lowest: int  # exponent of the smallest normal number; below it the spacing stays the same
    largest: float

    @property
    def epsilon(self) -> float:
        """Return the largest relative error of one rounding."""
        return 2.0 ** -(self.bits + 1)

    def spacing(self, values: Array) -> Array:
        """Return the distance to the next number of this format, at each value."""
        _, exponents = np.frexp(values)  # the fraction is in [0.5, 1)
        return np.ldexp(1.0, np.maximum(exponents - 1, self.lowest) - self.bits)

    def round(self, values: Array) -> Array:
        """Round to the nearest number of this format, ties to even; too large values become infinite."""
        spacing = self.spacing(values)
        rounded = np.rint(values / spacing) * spacing
        return np.where(np.abs(rounded) > self.largest, np.copysign(np.inf, rounded), rounded)

    def contains_all(self, values: Array) -> bool:
        """Return True if every finite value is a number of this format."""
        finite = values[np.isfinite(values)]
        return bool(finite.size) and bool(np.array_equal(self.round(finite), finite))


FLOAT16 = Grid("float16", 10, -14, 65504.0)
BFLOAT16 = Grid("bfloat16", 7, -126, 3.3895313892515355e38)
TF32 = Grid("TF32", 10, -126, 3.4e38)
FLOAT32 = Grid("float32", 23, -126, 3.4028234663852886e38)
HALVES = (BFLOAT16, FLOAT16)  # the coarser first: most numbers on bfloat16's grid lie on float16's too


def is_one_rounding(left: Array, right: Array, grid: Grid) -> bool:
    """Return True if the left looks like the right rounded to the grid.

    The left lies on the grid, the right does not, and more than 98 % of the elements differ by at most about half a
    step of the grid.
    """
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = left[finite], right[finite]
    if left.size < 8 or not grid.contains_all(left) or grid.contains_all(right):
        return False
    steps = np.abs(left - right) / grid.spacing(right)
    return float(np.mean(steps <= 0.55)) > 0.98


@dataclass(frozen=True)
class UniformGrid:
    """Grid of values `start` + k · `step`, for whole numbers k."""

    step: float
    start: float
    levels: int  # number of grid values in the tensor's range

    def on_grid(self, values: Array) -> Array:
        """Return a mask of the values that lie on the grid."""
        numbers = (values - self.start) / self.step
        slack = NEAR + STORAGE_ERROR * np.abs(values) / self.step
        is_near: Array = np.abs(numbers - np.rint(numbers)) <= np.minimum(slack, 0.25)
        return is_near


def find_uniform_grid(values: Array) -> UniformGrid | None:
    """Return the grid of equal steps on which all values lie; None if there is none or the values are too few."""
    levels = np.unique(values[np.isfinite(values)])
    if not MIN_VALUES <= levels.size <= MAX_VALUES:
        return None
    gaps = np.diff(levels)
    gaps = gaps[gaps > 4 * STORAGE_ERROR * float(np.max(np.abs(levels)))]  # smaller gaps are storage errors
    if not gaps.size:
        return None
    extent = float(levels[-1] - levels[0])
    step = extent / max(1, round(extent / float(np.min(gaps))))
    grid = UniformGrid(step, float(levels[0]), round(extent / step) + 1)
    return grid if bool(grid.on_grid(levels).all()) and grid.levels >= MIN_VALUES else None
