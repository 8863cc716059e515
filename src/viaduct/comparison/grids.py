"""Grids of numbers: the numbers of a floating-point format, and numbers with equal steps, such as quantised ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from viaduct.comparison.records import Array

MIN_VALUES = 5  # distinct values; fewer may lie on a grid of equal steps by chance
MAX_VALUES = 1 << 16  # distinct values; a tensor with more is not searched for a grid
MAX_DISTANCE = 0.02  # of a value from the grid of equal steps, in steps
STORAGE_ERROR = 2.0**-22  # relative error allowed for a grid value that is stored as float32; one rounding is 2^-24


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point format, which may be narrower than any dtype of NumPy."""

    name: str
    fraction_bits: int  # without the implicit leading one
    min_exponent: int  # of the smallest normal number; below it the spacing stays the same
    largest: float  # the largest finite number

    @property
    def epsilon(self) -> float:
        """Return the largest relative error of one rounding."""
        return 2.0 ** -(self.fraction_bits + 1)

    def spacing(self, values: Array) -> Array:
        """Return the distance to the next number of this format, at each value."""
        _, exponents = np.frexp(values)  # of a fraction in [0.5, 1), so one more than the format's exponent
        return np.ldexp(1.0, np.maximum(exponents - 1, self.min_exponent) - self.fraction_bits)

    def round(self, values: Array) -> Array:
        """Round to the nearest number of this format, ties to even; too large values become infinite."""
        spacing = self.spacing(values)
        rounded = np.rint(values / spacing) * spacing
        return np.where(np.abs(rounded) > self.largest, np.copysign(np.inf, rounded), rounded)

    def contains_all(self, values: Array) -> bool:
        """Return True if every finite value is a number of this format, and there is one."""
        finite = values[np.isfinite(values)]
        return bool(finite.size) and bool(np.array_equal(self.round(finite), finite))


FLOAT16 = FloatFormat("float16", 10, -14, 65504.0)
BFLOAT16 = FloatFormat("bfloat16", 7, -126, 3.3895313892515355e38)
TF32 = FloatFormat("TF32", 10, -126, 3.4e38)
FLOAT32 = FloatFormat("float32", 23, -126, 3.4028234663852886e38)
HALF_FORMATS = (BFLOAT16, FLOAT16)  # the coarser first: most bfloat16 numbers are float16 numbers too


def is_one_rounding(left: Array, right: Array, float_format: FloatFormat) -> bool:
    """Return True if the left looks like the right rounded to the format.

    All finite left values are numbers of the format, not all right ones are, and more than 98 % of the elements differ
    by about half the spacing or less.
    """
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = left[finite], right[finite]
    if left.size < 8 or not float_format.contains_all(left) or float_format.contains_all(right):
        return False
    steps = np.abs(left - right) / float_format.spacing(right)
    return float(np.mean(steps <= 0.55)) > 0.98  # a little more than half, for errors of the right side


@dataclass(frozen=True)
class UniformGrid:
    """The values `start` + k · `step`, for whole numbers k."""

    step: float
    start: float
    levels: int  # number of grid values in the tensor's range

    def find_members(self, values: Array) -> Array:
        """Return a mask of the values that lie on the grid."""
        steps = (values - self.start) / self.step
        allowed = MAX_DISTANCE + STORAGE_ERROR * np.abs(values) / self.step
        is_near: Array = np.abs(steps - np.rint(steps)) <= np.minimum(allowed, 0.25)
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
    return grid if bool(grid.find_members(levels).all()) and grid.levels >= MIN_VALUES else None
