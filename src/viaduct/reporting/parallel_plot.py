"""Parallel coordinates: each run is a line across the axes of its hyper-parameters and its results.

The script adds filters for every axis, which act on the curves of the same page too (run_curves.js), and a read-out for
the run under the pointer or chosen with the arrow keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from viaduct.reporting.figures import is_number

DECADES = 50.0
"""Ratio of the largest to the smallest value above which an axis of positive numbers has a log scale."""
MISSING_FOOT = 0.1
"""Fraction of an axis kept free below its values if some run has none; the lines of such runs pass at its foot."""
MOST_CATEGORIES = 12
"""Labels of an axis of categories at most."""
Cell = float | int | str | bool | None


@dataclass(frozen=True)
class PlotAxis:
    """One value for each run; None: the run has none. A value that is not a number makes it an axis of categories."""

    name: str
    values: Sequence[Cell]
    unit: str = ""

    @cached_property
    def is_numeric(self) -> bool:
        return all(value is None or is_finite_number(value) for value in self.values)

    @cached_property
    def known(self) -> list[Cell]:
        """Return the distinct values: numbers ascending, categories in order of appearance."""
        distinct = {write_cell(value): value for value in self.values if value is not None}
        if self.is_numeric:
            return sorted(distinct.values(), key=lambda value: float(value))  # type: ignore[arg-type]
        return list(distinct.values())

    @cached_property
    def is_log(self) -> bool:
        if not self.is_numeric or len(self.known) < 3:
            return False
        low, high = float(self.known[0] or 0), float(self.known[-1] or 0)
        return low > 0 and high > DECADES * low

    def place(self, value: Cell) -> float:
        """Return the height of a value, 0 at the foot and 1 at the top."""
        if value is None:
            return 0.0
        if not self.is_numeric:
            names = [write_cell(category) for category in self.known]
            height = 0.5 if len(names) == 1 else names.index(write_cell(value)) / (len(names) - 1)
        else:
            low, high = (self.scale(float(end)) for end in (self.known[0], self.known[-1]))  # type: ignore[arg-type]
            height = 0.5 if high == low else (self.scale(float(value)) - low) / (high - low)
        foot = MISSING_FOOT if None in self.values else 0.0
        return foot + (1 - foot) * height

    def scale(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return heights and labels: all values if they are few, else some of them with both ends."""
        shown = self.known
        if len(shown) > 5 and self.is_numeric:
            shown = [shown[0], *choose_between_ends(self), shown[-1]]
        elif len(shown) > MOST_CATEGORIES:
            stride = (len(shown) - 1) / (MOST_CATEGORIES - 1)
            shown = [shown[round(index * stride)] for index in range(MOST_CATEGORIES)]
        ticks = [(self.place(value), write_cell(value)) for value in shown]
        return [*ticks, (0.0, "none")] if None in self.values else ticks

    @property
    def title(self) -> tuple[str, str]:
        """Return the name as section and field: ("optimizer.", "lr")."""
        section, dot, field = self.name.rpartition(".")
        return section + dot, field


def choose_between_ends(axis: PlotAxis) -> list[Cell]:
    """Return up to three values nearest to the quarters of an axis, without those too close to another or to an end."""
    chosen: list[Cell] = []
    for quarter in (0.25, 0.5, 0.75):
        nearest = min(axis.known, key=lambda value: abs(axis.place(value) - quarter))
        taken = [axis.place(value) for value in (axis.known[0], axis.known[-1], *chosen)]
        if all(abs(axis.place(nearest) - height) > 0.12 for height in taken):
            chosen.append(nearest)
    return chosen


@dataclass(frozen=True)
class ParallelPlot:
    """`names` of the runs, and axes with a value for each run; `colour` is the index of the axis that colours lines."""

    template: ClassVar[str] = "parallel_plot.html"

    title: str
    names: Sequence[str]
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
        points = [f"{1000 * x:.1f} {1000 * (1 - axis.place(axis.values[row])):.1f}" for x, axis in self.placed_axes]
        axis = self.axes[self.colour]
        value = axis.values[row]
        return RunLine(name, "M" + "L".join(points), None if value is None else round(100 * axis.place(value)))

    @property
    def data(self) -> dict[str, object]:
        """Return what the script needs: values as compared and as shown, and positions from the top left corner."""
        return {
            "names": list(self.names),
            "axes": [
                {
                    "name": axis.name,
                    "unit": axis.unit,
                    "numeric": axis.is_numeric,
                    "values": [value if axis.is_numeric else write_text(value) for value in axis.values],
                    "places": [round(1 - axis.place(value), 4) for value in axis.values],
                    "across": round(x, 4),
                    "known": [write_text(value) for value in axis.known],
                }
                for x, axis in self.placed_axes
            ],
        }


@dataclass(frozen=True)
class RunLine:
    """The line of one run as an SVG path."""

    name: str
    path: str
    share: int | None
    """Height on the axis that colours the lines, in percent; None: the run has no value there."""


def is_finite_number(value: Cell) -> bool:
    return not isinstance(value, bool) and is_number(value) and abs(float(value)) < 1e300


def write_cell(value: Cell) -> str:
    """Return a number with five significant digits, other values as text; an empty text as two quotes."""
    return f"{float(value):.5g}" if is_finite_number(value) else str(value) or '""'  # type: ignore[arg-type]


def write_text(value: Cell) -> str | None:
    return None if value is None else write_cell(value)
