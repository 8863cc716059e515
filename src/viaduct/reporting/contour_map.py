"""Contour map of a quantity over two settings: measurements as dots, bands of similar value interpolated between them.

Between measurements the value is their mean, weighted by the inverse square of their distance. Areas without a
measurement nearby stay empty. Only the dots were measured; the bands are a guide for the eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick

COLUMNS, ROWS = 36, 24  # cells of the interpolated grid
BANDS = 8  # number of shades
FAINTEST, DEEPEST = 0.06, 0.8  # opacity of the first and the last shade
REACH = 0.25  # distance to the nearest measurement, as a fraction of the chart's side, beyond which a cell stays empty


@dataclass(frozen=True)
class ContourAxis:
    """An axis from `low` to `high`; with `names` it is categorical, and value 0 is the first name."""

    label: str
    low: float
    high: float
    log: bool = False
    names: Sequence[str] = ()

    def make_axis(self) -> Axis:
        if self.names:
            return Axis(-0.5, len(self.names) - 0.5)
        return Axis(self.low, self.high, self.log)

    def ticks(self) -> list[Tick]:
        """Return ticks at round values, or one for each name."""
        axis = self.make_axis()
        if not self.names:
            return axis.ticks(6)
        positions = axis.compute_positions(np.arange(len(self.names), dtype=float))
        return [Tick(float(position), name) for position, name in zip(positions, self.names, strict=True)]


@dataclass(frozen=True)
class Measurement:
    """A measured value at two settings; `label` is its tooltip."""

    x: float
    y: float
    value: float
    label: str


@dataclass(frozen=True)
class ContourMap:
    """A quantity over two axes; `best` is the index in `points` of the best measurement, which has a larger dot."""

    template: ClassVar[str] = "contour_map.html"

    title: str
    x: ContourAxis
    y: ContourAxis
    quantity: str
    points: Sequence[Measurement]
    best: int | None = None
    unit: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        """Smallest and largest value."""
        values = [point.value for point in self.points] or [0.0]
        return f"{min(values):.4g}", f"{max(values):.4g}"

    @property
    def cells(self) -> list[ContourCell]:
        return draw_cells(self.compute_positions(), np.array([point.value for point in self.points], float))

    @property
    def dots(self) -> list[tuple[float, float, str]]:
        """Return x and y (fractions from the top left corner) and label of each measurement."""
        positions = self.compute_positions().tolist()
        return [(x, 1 - y, point.label) for (x, y), point in zip(positions, self.points, strict=True)]

    def compute_positions(self) -> Floats:
        """Return the x and y of each measurement as fractions of the axes."""
        x = self.x.make_axis().compute_positions(np.array([point.x for point in self.points], float))
        y = self.y.make_axis().compute_positions(np.array([point.y for point in self.points], float))
        return np.stack([x, y], axis=1)


@dataclass(frozen=True)
class ContourCell:
    """A rectangle of one band: position and size as fractions of the chart, from its top left corner."""

    x: float
    y: float
    width: float
    height: float
    opacity: float


def draw_cells(positions: Floats, values: Floats) -> list[ContourCell]:
    """Return the rectangles of the bands, none for fewer than three measurements or for equal values.

    Neighbouring cells of one band are joined within a row.
    """
    if len(values) < 3 or values.max() == values.min():
        return []
    bands = find_bands(positions, values)
    cells = []
    for row in range(ROWS):
        edges = [0, *(np.flatnonzero(np.diff(bands[row])) + 1), COLUMNS]
        for begin, end in pairwise(edges):
            if bands[row, begin] >= 0:
                opacity = FAINTEST + (DEEPEST - FAINTEST) * int(bands[row, begin]) / (BANDS - 1)
                left, width = begin / COLUMNS, (end - begin) / COLUMNS
                cells.append(ContourCell(left, 1 - (row + 1) / ROWS, width, 1 / ROWS, round(opacity, 3)))
    return cells


def find_bands(positions: Floats, values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the band of every cell, 0 to BANDS - 1, row 0 at the bottom; -1 if no measurement is near."""
    x, y = np.meshgrid((np.arange(COLUMNS) + 0.5) / COLUMNS, (np.arange(ROWS) + 0.5) / ROWS)
    squared_distances = (x[..., None] - positions[:, 0]) ** 2 + (y[..., None] - positions[:, 1]) ** 2
    weights = 1 / (squared_distances + 1e-4)  # finite on a measurement itself
    field = (weights * values).sum(-1) / weights.sum(-1)
    fractions = (field - values.min()) / (values.max() - values.min())
    bands = np.clip((fractions * BANDS).astype(np.int64), 0, BANDS - 1)
    return np.where(squared_distances.min(-1) <= REACH**2, bands, -1)
