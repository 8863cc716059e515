"""The numbers that a shorter floating-point format can represent, and their spacing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Grid:
    """A format by its fraction bits, its smallest normal exponent and its largest number."""

    name: str
    bits: int  # of the fraction, without the leading one
    lowest: int  # exponent of the smallest normal number; below it the spacing stays the same
    largest: float

    @property
    def epsilon(self) -> float:
        """Largest relative error of one rounding."""
        return 2.0 ** -(self.bits + 1)

    def spacing(self, values: Array) -> Array:
        """Distance to the next number of this format, at each value."""
        _, exponents = np.frexp(values)  # the fraction is in [0.5, 1)
        return np.ldexp(1.0, np.maximum(exponents - 1, self.lowest) - self.bits)

    def round(self, values: Array) -> Array:
        """Round to the nearest number of this format, ties to even; what is too large becomes infinite."""
        spacing = self.spacing(values)
        near = np.rint(values / spacing) * spacing
        return np.where(np.abs(near) > self.largest, np.copysign(np.inf, near), near)

    def contains_all(self, values: Array) -> bool:
        """Return True if every finite value is a number of this format."""
        finite = values[np.isfinite(values)]
        return bool(finite.size) and bool(np.array_equal(self.round(finite), finite))


FLOAT16 = Grid("float16", 10, -14, 65504.0)
BFLOAT16 = Grid("bfloat16", 7, -126, 3.3895313892515355e38)
TF32 = Grid("TF32", 10, -126, 3.4e38)
FLOAT32 = Grid("float32", 23, -126, 3.4028234663852886e38)
HALVES = (BFLOAT16, FLOAT16)  # the coarser first: what lies on bfloat16's grid mostly lies on float16's too


def is_one_rounding(left: Array, right: Array, grid: Grid) -> bool:
    """Return True if the left lies on the grid, 98 % of it within one rounding of the right, which does not."""
    finite = np.isfinite(left) & np.isfinite(right)
    left, right = left[finite], right[finite]
    if left.size < 8 or not grid.contains_all(left) or grid.contains_all(right):
        return False
    steps = np.abs(left - right) / grid.spacing(right)
    return float(np.mean(steps <= 0.55)) > 0.98
