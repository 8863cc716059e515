"""Parallel coordinates: each run is a line across the axes of its hyper-parameters and its results.

The script adds a filter for every axis and a read-out for one run. The filters also act on the curves of the page
(run_curves.js).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from viaduct.reporting.figures import is_number
from viaduct.reporting.line_chart import MAX_VALUE

# Ratio of the largest to the smallest value above which an axis of three or more positive numbers has a log scale.
LOG_SCALE_RATIO = 50.0
MISSING_SHARE = 0.1  # fraction of an axis below its values that is reserved for runs without a value
MAX_CATEGORIES = 12  # largest number of labels on an axis of categories
AxisValue = float | int | str | bool | None


@dataclass(frozen=True)
class PlotAxis:
    """One value for each run, or None. If a value is not a number, all are categories."""

    name: str
    values: Sequence[AxisValue]
    unit: str = ""

    @cached_property
    def is_numeric(self) -> bool:
        return all(value is None or is_finite_number(value) for value in self.values)

    @cached_property
    def known(self) -> list[AxisValue]:
        """Return the distinct values: numbers ascending, categories in order of appearance."""
        distinct = {format_axis_value(value): value for value in self.values if value is not None}
        if self.is_numeric:
            return sorted(distinct.values(), key=lambda value: float(value))  # type: ignore[arg-type]
        return list(distinct.values())

    @cached_property
    def is_log(self) -> bool:
        if not self.is_numeric or len(self.known) < 3:
            return False
        low, high = float(self.known[0] or 0), float(self.known[-1] or 0)
        return low > 0 and high > LOG_SCALE_RATIO * low

    def compute_height(self, value: AxisValue) -> float:
        """Return the height of a value from 0 (bottom) to 1 (top)."""
        if value is None:
            return 0.0
        if not self.is_numeric:
            names = [format_axis_value(category) for category in self.known]
            height = 0.5 if len(names) == 1 else names.index(format_axis_value(value)) / (len(names) - 1)
        else:
            low, high = (self.scale(float(end)) for end in (self.known[0], self.known[-1]))  # type: ignore[arg-type]
            height = 0.5 if high == low else (self.scale(float(value)) - low) / (high - low)
        lowest = MISSING_SHARE if None in self.values else 0.0
        return lowest + (1 - lowest) * height

    def scale(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return heights and labels of all values, or of both ends and some values between if there are many."""
        shown = self.known
        if len(shown) > 5 and self.is_numeric:
            shown = [shown[0], *choose_between_ends(self), shown[-1]]
        elif len(shown) > MAX_CATEGORIES:
            stride = (len(shown) - 1) / (MAX_CATEGORIES - 1)
            shown = [shown[round(index * stride)] for index in range(MAX_CATEGORIES)]
        ticks = [(self.compute_height(value), format_axis_value(value)) for value in shown]
        return [*ticks, (0.0, "none")] if None in self.values else ticks

    @property
    def title(self) -> tuple[str, str]:
        """Return the name as section and field: ("optimizer.", "lr")."""
        section, dot, field = self.name.rpartition(".")
        return section + dot, field


def choose_between_ends(axis: PlotAxis) -> list[AxisValue]:
    """Return up to three values near the quarters of an axis, none too close to another or to an end."""
    chosen: list[AxisValue] = []
    for quarter in (0.25, 0.5, 0.75):
        nearest = min(axis.known, key=lambda value: abs(axis.compute_height(value) - quarter))
        used_heights = [axis.compute_height(value) for value in (axis.known[0], axis.known[-1], *chosen)]
        if all(abs(axis.compute_height(nearest) - height) > 0.12 for height in used_heights):
            chosen.append(nearest)
    return chosen


@dataclass(frozen=True)
class ParallelPlot:
    """A line for each run; `colour` is the index in `axes` of the axis that colours the lines, -1 for the last."""

    template: ClassVar[str] = "parallel_plot.html"

    title: str
    names: Sequence[str]  # of the runs
    axes: Sequence[PlotAxis]
    colour: int = -1

    def __post_init__(self) -> None:
        for axis in self.axes:
            if len(axis.values) != len(self.names):
                raise ValueError(f"axis {axis.name!r} has {len(axis.values)} values for {len(self.names)} runs.")

    @property
    def placed_axes(self) -> list[tuple[float, PlotAxis]]:
        """Return each axis with its horizontal position from 0 to 1: the middle of its column."""
        return [((index + 0.5) / len(self.axes), axis) for index, axis in enumerate(self.axes)]

    @property
    def lines(self) -> list[RunLine]:
        return [self.draw_line(row, name) for row, name in enumerate(self.names)] if self.axes else []

    def draw_line(self, row: int, name: str) -> RunLine:
        heights = [(x, axis.compute_height(axis.values[row])) for x, axis in self.placed_axes]
        points = [f"{1000 * x:.1f} {1000 * (1 - height):.1f}" for x, height in heights]
        axis = self.axes[self.colour]
        value = axis.values[row]
        return RunLine(name, "M" + "L".join(points), None if value is None else round(100 * axis.compute_height(value)))

    @property
    def data(self) -> dict[str, object]:
        """Return the data of the script: values to filter by, texts, and positions from the top left corner."""
        return {
            "names": list(self.names),
            "axes": [
                {
                    "name": axis.name,
                    "unit": axis.unit,
                    "numeric": axis.is_numeric,
                    "values": [value if axis.is_numeric else format_or_none(value) for value in axis.values],
                    "places": [round(1 - axis.compute_height(value), 4) for value in axis.values],
                    "across": round(x, 4),
                    "known": [format_or_none(value) for value in axis.known],
                }
                for x, axis in self.placed_axes
            ],
        }


@dataclass(frozen=True)
class RunLine:
    """The line of one run as an SVG path."""

    name: str
    path: str
    colour_height: int | None  # height on the axis that colours the lines, in percent; None: no value


def is_finite_number(value: AxisValue) -> bool:
    return not isinstance(value, bool) and is_number(value) and abs(float(value)) < MAX_VALUE


def format_axis_value(value: AxisValue) -> str:
    """Return a number with five significant digits, other values as text, and an empty text as two quotes."""
    return f"{float(value):.5g}" if is_finite_number(value) else str(value) or '""'  # type: ignore[arg-type]


def format_or_none(value: AxisValue) -> str | None:
    return None if value is None else format_axis_value(value)
