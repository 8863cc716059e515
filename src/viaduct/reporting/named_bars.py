"""Small numbers by name, as bars on one log scale: which layer differs, and by how much.

A value of 0 is not a short bar: it has none, and the word `equal`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.figures import write_power, write_scientific


@dataclass(frozen=True)
class BarSeries:
    """A value a name: None: there is none; 0: equal; infinite: without a measure. `bad`: places beyond a limit."""

    name: str
    values: Sequence[float | None]
    bad: frozenset[int] = frozenset()


@dataclass(frozen=True)
class NamedBars:
    """`names` from top to bottom; each has a bar of every series, if it has a value above zero."""

    template: ClassVar[str] = "named_bars.html"

    title: str
    names: Sequence[str]
    series: Sequence[BarSeries]
    text: str = ""

    def __post_init__(self) -> None:
        for series in self.series:
            if len(series.values) != len(self.names):
                raise ValueError(f"series {series.name!r} has {len(series.values)} values for {len(self.names)} names.")

    def drawing(self) -> NamedBarsDrawing:
        values = [value for series in self.series for value in series.values if is_measured(value)]
        low, high = decades(values)
        rows = [
            (name, [draw_bar(number, series, index, low, high) for number, series in enumerate(self.series)])
            for index, name in enumerate(self.names)
        ]
        return NamedBarsDrawing(self, rows, write_power(low), write_power(high), has_bars=bool(values))


@dataclass(frozen=True)
class NamedBar:
    """One drawn bar."""

    series: int
    text: str
    length: float
    bad: bool


@dataclass(frozen=True)
class NamedBarsDrawing:
    """Bars as the template needs them."""

    chart: NamedBars
    rows: Sequence[tuple[str, Sequence[NamedBar | None]]]
    low: str
    high: str
    has_bars: bool


def is_measured(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def decades(values: Sequence[float | None]) -> tuple[int, int]:
    """The powers of ten around all bars; the shortest still has a length."""
    logs = [math.log10(value) for value in values if value]
    low = math.ceil(min(logs)) - 1 if logs else -1
    return low, max(math.ceil(max(logs)), low + 1) if logs else 0


def draw_bar(number: int, series: BarSeries, place: int, low: int, high: int) -> NamedBar | None:
    value, bad = series.values[place], place in series.bad
    if value is None:
        return None
    if value == 0:
        return NamedBar(number, "equal", 0.0, bad)
    if not math.isfinite(value):
        return NamedBar(number, "no measure", 0.0, bad)
    return NamedBar(number, write_scientific(value, 2), (math.log10(value) - low) / (high - low), bad)
