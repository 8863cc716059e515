"""Bars of small numbers by name on one log scale, such as the difference of each layer.

A value of 0 has the text `equal` instead of a bar.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.figures import format_power, format_scientific


@dataclass(frozen=True)
class BarSeries:
    """One value, not below 0, for each name. None: no bar; 0: the text `equal`; not finite: the text `no measure`.

    `bad` has the indices of the values beyond a limit.
    """

    name: str
    values: Sequence[float | None]
    bad: frozenset[int] = frozenset()


@dataclass(frozen=True)
class NamedBars:
    """`names` from top to bottom, each with a bar for every series that has a value above zero."""

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
        low, high = find_decades(values)
        rows = [
            (name, [draw_bar(number, series, index, low, high) for number, series in enumerate(self.series)])
            for index, name in enumerate(self.names)
        ]
        return NamedBarsDrawing(rows, format_power(low), format_power(high), has_bars=bool(values))


@dataclass(frozen=True)
class NamedBar:
    """One drawn bar; `series` is the index of its series, `length` from 0 to 1."""

    series: int
    text: str
    length: float
    bad: bool


@dataclass(frozen=True)
class NamedBarsDrawing:
    """Bars of each name, one for each series, and the ends of the scale."""

    rows: Sequence[tuple[str, Sequence[NamedBar | None]]]
    low: str
    high: str
    has_bars: bool


def is_measured(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def find_decades(values: Sequence[float | None]) -> tuple[int, int]:
    """Return the exponents of the powers of ten around all values; the lower is below the smallest value."""
    logs = [math.log10(value) for value in values if value]
    low = math.ceil(min(logs)) - 1 if logs else -1
    return low, max(math.ceil(max(logs)), low + 1) if logs else 0


def draw_bar(series_index: int, series: BarSeries, index: int, low: int, high: int) -> NamedBar | None:
    """Draw the value at `index` of a series on a scale from 10^low to 10^high."""
    value, bad = series.values[index], index in series.bad
    if value is None:
        return None
    if value == 0:
        return NamedBar(series_index, "equal", 0.0, bad)
    if not math.isfinite(value):
        return NamedBar(series_index, "no measure", 0.0, bad)
    return NamedBar(series_index, format_scientific(value, 2), (math.log10(value) - low) / (high - low), bad)
