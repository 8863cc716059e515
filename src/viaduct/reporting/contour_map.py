"""A quantity over two settings, from measurements at some places: bands of equal value, and the measurements as dots.

Between measurements the value is their mean, weighted by the inverse square of their distance; where none is near, the
chart stays empty. The bands are for the eye: what was measured are the dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick

ACROSS, UP = 36, 24
"""Cells of the field."""
BANDS = 8
REACH = 0.25
"""Distance to the nearest measurement, as a share of the chart's side, beyond which nothing is drawn."""


@dataclass(frozen=True)
class ContourAxis:
    """An axis from `low` to `high`; with `names` its values are 0, 1, 2 …, which are called so."""

    label: str
    low: float
    high: float
    log: bool = False
    names: Sequence[str] = ()

    def axis(self) -> Axis:
        """Return the axis with its range."""
        if self.names:
            return Axis(-0.5, len(self.names) - 0.5)
        return Axis(self.low, self.high, self.log)

    def ticks(self) -> list[Tick]:
        """Return the ticks, or the names of choices."""
        axis = self.axis()
        if not self.names:
            return axis.ticks(6)
        values = axis.place(np.arange(len(self.names), dtype=float))
        return [Tick(float(value), name) for value, name in zip(values, self.names, strict=True)]


@dataclass(frozen=True)
class Measurement:
    """A measured value at a place; `label` is what the pointer reads there."""

    x: float
    y: float
    value: float
    label: str


@dataclass(frozen=True)
class ContourMap:
    """Bands of a quantity over two axes. `best` is the position of the best measurement."""

    template: ClassVar[str] = "contour_map.html"

    title: str
    x: ContourAxis
    y: ContourAxis
    quantity: str
    points: Sequence[Measurement]
    best: int | None = None
    unit: str = ""

    def drawing(self) -> ContourDrawing:
        positions = self.places()
        values = np.array([point.value for point in self.points], float)
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        return ContourDrawing(
            chart=self,
            x_ticks=self.x.ticks(),
            y_ticks=self.y.ticks(),
            cells=draw_cells(positions, values),
            dots=[(float(x), float(1 - y), point.label) for (x, y), point in zip(positions, self.points, strict=True)],
            low=f"{low:.4g}",
            high=f"{high:.4g}",
        )

    def places(self) -> Floats:
        """Return the measurements' places, 0 to 1 along both axes."""
        x = self.x.axis().place(np.array([point.x for point in self.points], float))
        y = self.y.axis().place(np.array([point.y for point in self.points], float))
        return np.stack([x, y], axis=1)


@dataclass(frozen=True)
class ContourCell:
    """A rectangle of the field in shares of the chart, and how deep its colour is."""

    x: float
    y: float
    width: float
    height: float
    tint: float


@dataclass(frozen=True)
class ContourDrawing:
    chart: ContourMap
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    cells: Sequence[ContourCell]
    dots: Sequence[tuple[float, float, str]]
    low: str
    high: str

    @property
    def gutter(self) -> int:
        """Characters of the longest label of the vertical axis."""
        return max((len(tick.label) for tick in self.y_ticks), default=1)

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        return f"{len(self.dots)} measurements, {self.chart.quantity} from {self.low} to {self.high}"


def draw_cells(places: Floats, values: Floats) -> list[ContourCell]:
    """Return the rectangles of the field; neighbours of one band in a row are one rectangle."""
    if len(values) < 3 or values.max() == values.min():
        return []
    bands = find_bands(places, values)
    cells = []
    for row in range(UP):
        edges = [0, *(np.flatnonzero(np.diff(bands[row])) + 1), ACROSS]
        for begin, end in pairwise(edges):
            if bands[row, begin] >= 0:
                tint = 0.06 + 0.74 * bands[row, begin] / (BANDS - 1)
                cells.append(
                    ContourCell(
                        begin / ACROSS, 1 - (row + 1) / UP, (end - begin) / ACROSS, 1 / UP, round(float(tint), 3)
                    )
                )
    return cells


def find_bands(places: Floats, values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the band of every cell, 0 to BANDS - 1 from the lowest row up; -1 where no measurement is near."""
    x, y = np.meshgrid((np.arange(ACROSS) + 0.5) / ACROSS, (np.arange(UP) + 0.5) / UP)
    squares = (x[..., None] - places[:, 0]) ** 2 + (y[..., None] - places[:, 1]) ** 2
    weights = 1 / (squares + 1e-4)
    field = (weights * values).sum(-1) / weights.sum(-1)
    share = (field - values.min()) / (values.max() - values.min())
    bands = np.clip((share * BANDS).astype(np.int64), 0, BANDS - 1)
    return np.where(squares.min(-1) <= REACH**2, bands, -1)
