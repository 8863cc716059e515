"""Runs as lines across parallel axes, hyper-parameters first and results last: which values go with which results.

The script adds filters for every axis, that act on the curves of the same page too (run_curves.js), and a read-out for
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
"""Largest over smallest value from which on an axis of positive numbers has a log scale."""
MISSING_FOOT = 0.1
"""Share of an axis below its values, where lines of runs without a value pass."""
MOST_CATEGORIES = 12
Cell = float | int | str | bool | None


@dataclass(frozen=True)
class PlotAxis:
    """One value for each run; None: the run has none. Anything but numbers makes an axis of categories."""

    name: str
    values: Sequence[Cell]
    unit: str = ""

    @cached_property
    def is_numeric(self) -> bool:
        """Return True if all values are numbers or missing."""
        return all(value is None or is_finite_number(value) for value in self.values)

    @cached_property
    def known(self) -> list[Cell]:
        """The different values, in order."""
        found = {write_cell(value): value for value in self.values if value is not None}
        if self.is_numeric:
            return sorted(found.values(), key=lambda value: float(value))  # type: ignore[arg-type]
        return list(found.values())

    @cached_property
    def is_log(self) -> bool:
        """Return True if the axis is logarithmic."""
        if not self.is_numeric or len(self.known) < 3:
            return False
        low, high = float(self.known[0] or 0), float(self.known[-1] or 0)
        return low > 0 and high > DECADES * low

    def place(self, value: Cell) -> float:
        """Return where a value stands, 0 at the foot and 1 at the top."""
        foot = MISSING_FOOT if any(each is None for each in self.values) else 0.0
        if value is None:
            return 0.0
        if not self.is_numeric:
            names = [write_cell(each) for each in self.known]
            share = 0.5 if len(names) == 1 else names.index(write_cell(value)) / (len(names) - 1)
        else:
            low, high = (self.scale(float(end)) for end in (self.known[0], self.known[-1]))  # type: ignore[arg-type]
            share = 0.5 if high == low else (self.scale(float(value)) - low) / (high - low)
        return foot + (1 - foot) * share

    def scale(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels: every value where there are few, else some of them, the ends among them."""
        shown = self.known
        if len(shown) > 5 and self.is_numeric:
            shown = [shown[0], *spread_between(self), shown[-1]]
        elif len(shown) > MOST_CATEGORIES:
            shown = [
                shown[round(position * (len(shown) - 1) / (MOST_CATEGORIES - 1))] for position in range(MOST_CATEGORIES)
            ]
        ticks = [(self.place(value), write_cell(value)) for value in shown]
        return [*ticks, (0.0, "none")] if any(value is None for value in self.values) else ticks

    @property
    def title(self) -> tuple[str, str]:
        """The part and the field: ("optimizer.", "lr")."""
        head, dot, tail = self.name.rpartition(".")
        return head + dot, tail


def spread_between(axis: PlotAxis) -> list[Cell]:
    """Return three values of an axis between its ends, near its quarters; those too close to another are left out."""
    found: list[Cell] = []
    for quarter in (0.25, 0.5, 0.75):
        nearest = min(axis.known, key=lambda value: abs(axis.place(value) - quarter))
        taken = [axis.place(value) for value in (axis.known[0], axis.known[-1], *found)]
        if all(abs(axis.place(nearest) - height) > 0.12 for height in taken):
            found.append(nearest)
    return found


@dataclass(frozen=True)
class ParallelPlot:
    """`names` of the runs, and axes with a value for each; lines are coloured by the axis with the number `colour`."""

    template: ClassVar[str] = "parallel_plot.html"

    title: str
    names: Sequence[str]
    axes: Sequence[PlotAxis]
    colour: int = -1

    def __post_init__(self) -> None:
        for axis in self.axes:
            if len(axis.values) != len(self.names):
                raise ValueError(f"axis {axis.name!r} has {len(axis.values)} values for {len(self.names)} runs.")

    def drawing(self) -> PlotDrawing:
        return PlotDrawing(self)


@dataclass(frozen=True)
class RunLine:
    """One run's line."""

    name: str
    path: str
    share: int | None
    """Where the run stands on the axis of the colour, in percent; None: nowhere."""


@dataclass(frozen=True)
class PlotDrawing:
    """Parallel axes as the template needs them."""

    plot: ParallelPlot

    def across(self, position: int) -> float:
        """Return where an axis stands: in the middle of its column."""
        return (position + 0.5) / max(1, len(self.plot.axes))

    @property
    def axes(self) -> list[tuple[float, PlotAxis]]:
        return [(self.across(position), axis) for position, axis in enumerate(self.plot.axes)]

    @property
    def lines(self) -> list[RunLine]:
        return [self.draw_line(row, name) for row, name in enumerate(self.plot.names)] if self.plot.axes else []

    def draw_line(self, row: int, name: str) -> RunLine:
        points = [f"{1000 * x:.1f} {1000 * (1 - axis.place(axis.values[row])):.1f}" for x, axis in self.axes]
        axis = self.plot.axes[self.plot.colour]
        value = axis.values[row]
        return RunLine(name, "M" + "L".join(points), None if value is None else round(100 * axis.place(value)))

    @property
    def colour_name(self) -> str:
        return self.plot.axes[self.plot.colour].name if self.plot.axes else ""

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        return f"{len(self.plot.names)} runs over {', '.join(axis.name for axis in self.plot.axes)}"

    @property
    def data(self) -> dict[str, object]:
        """Return the values that the script needs, as compared and as shown."""
        return {
            "names": list(self.plot.names),
            "axes": [
                {
                    "name": axis.name,
                    "unit": axis.unit,
                    "numeric": axis.is_numeric,
                    "values": [value if axis.is_numeric else write_text(value) for value in axis.values],
                    "places": [round(1 - axis.place(value), 4) for value in axis.values],
                    "across": round(self.across(position), 4),
                    "known": [write_text(value) for value in axis.known],
                }
                for position, axis in enumerate(self.plot.axes)
            ],
        }


def is_finite_number(value: Cell) -> bool:
    return not isinstance(value, bool) and is_number(value) and abs(float(value)) < 1e300


def write_cell(value: Cell) -> str:
    return f"{float(value):.5g}" if is_finite_number(value) else str(value) or '""'  # type: ignore[arg-type]


def write_text(value: Cell) -> str | None:
    return None if value is None else write_cell(value)
