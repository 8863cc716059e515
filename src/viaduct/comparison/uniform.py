"""Grids of equal steps, as fixed-point and quantised numbers have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FEWEST = 5  # different values; fewer lie on some grid by chance
MOST = 1 << 16  # different values
NEAR = 0.02  # distance of a value from the grid that is allowed, in steps
STORED = 2.0**-22  # relative error of storing scale * number as float32


@dataclass(frozen=True)
class Uniform:
    """Values at `start` + a whole number of `step`s; `levels` are those between the smallest and the largest."""

    step: float
    start: float
    levels: int

    def on_grid(self, values: Array) -> Array:
        """Return a mask of the values that lie on the grid."""
        numbers = (values - self.start) / self.step
        slack = NEAR + STORED * np.abs(values) / self.step
        is_near: Array = np.abs(numbers - np.rint(numbers)) <= np.minimum(slack, 0.25)
        return is_near


def find_uniform(values: Array) -> Uniform | None:
    """Return the grid of equal steps on which all values lie; None if there is none, or too few values to tell."""
    different = np.unique(values[np.isfinite(values)])
    if not FEWEST <= different.size <= MOST:
        return None
    gaps = np.diff(different)
    least = float(np.max(np.abs(different))) * STORED
    gaps = gaps[gaps > 4 * least]  # the same level, stored twice
    if not gaps.size:
        return None
    extent = float(different[-1] - different[0])
    step = extent / max(1, round(extent / float(np.min(gaps))))
    grid = Uniform(step, float(different[0]), round(extent / step) + 1)
    return grid if bool(grid.on_grid(different).all()) and grid.levels >= FEWEST else None
