"""Bars made of layers, side by side: the phases of each step, or of each rank. Several groups share one scale.

Where there are more bars than a screen has room for, neighbours are drawn as one bar: their mean, with a mark at the
longest of them. Bars far beyond all others are cut at the top, marked, and named under the chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from viaduct.reporting.axis import Axis, Floats, Tick
from viaduct.reporting.line_chart import COLOURS
from viaduct.reporting.page import own_file

MOST_BARS = 180
MOST_GROUPS = 32
SPACED = 90
"""Bars up to which there is air between them."""
MOST_LABELS = 10
STRIDES = (1, 2, 5, 10, 20)
FAR_BEYOND = 4.0
"""Times the 95th percentile from which on a bar is cut."""


@dataclass(frozen=True)
class BarGroup:
    """Bars that are shown together, such as the steps of one rank: a label a bar, and a row of values a layer.

    A value that is None was not measured.
    """

    name: str
    labels: Sequence[str]
    layers: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class StackedBars:
    """`layers` are named from the bottom up; `group_label` stands before the choice of a group."""

    template: ClassVar[str] = "stacked_bars.html"

    title: str
    x_label: str
    y_label: str
    layers: Sequence[str]
    groups: Sequence[BarGroup]
    unit: str = ""
    group_label: str = "group"

    def __post_init__(self) -> None:
        for group in self.groups:
            if len(group.layers) != len(self.layers):
                raise ValueError(f"group {group.name!r} has {len(group.layers)} layers for {len(self.layers)} names.")
            if any(len(layer) != len(group.labels) for layer in group.layers):
                raise ValueError(f"group {group.name!r} has {len(group.labels)} labels for other numbers of values.")

    def drawing(self) -> StackedDrawing:
        gathered = [gather(group) for group in self.groups[:MOST_GROUPS]]
        sums = np.concatenate([bars.heights for bars in gathered]) if gathered else np.empty(0)
        axis = Axis(0.0, find_top(sums))
        views = [draw_group(bars, axis) for bars in gathered]
        return StackedDrawing(self, axis.ticks(6) if sums.size else [], views, axis.high)


@dataclass(frozen=True)
class GatheredBars:
    """The bars that are drawn of a group, each of one or more neighbours."""

    group: BarGroup
    first: Sequence[int]  # position of the first neighbour of each bar, and at the end the number of all
    means: Floats  # layers x bars; NaN where nothing was measured
    longest: Floats  # the longest neighbour of each bar

    @property
    def heights(self) -> Floats:
        heights: Floats = np.nansum(self.means, axis=0)
        return heights

    def label(self, bar: int) -> str:
        first, last = self.first[bar], self.first[bar + 1] - 1
        labels = self.group.labels
        return labels[first] if first == last else f"{labels[first]}–{labels[last]}"


@dataclass(frozen=True)
class GroupView:
    """One group of bars as the template and the script need it."""

    name: str
    paths: Sequence[str]
    marks: str
    cuts: Sequence[float]
    x_ticks: Sequence[Tick]
    note: str
    summary: str
    data: dict[str, object]


@dataclass(frozen=True)
class StackedDrawing:
    """Stacked bars as the template needs them."""

    chart: StackedBars
    y_ticks: Sequence[Tick]
    views: Sequence[GroupView]
    top: float

    @property
    def style(self) -> Markup:
        return own_file("stacked_bars.css")

    @property
    def gutter(self) -> int:
        """Room for the longest label of the vertical axis, in characters."""
        return max((len(tick.label) for tick in self.y_ticks), default=1)

    @property
    def y_name(self) -> str:
        return f"{self.chart.y_label} ({self.chart.unit})" if self.chart.unit else self.chart.y_label

    @property
    def legend(self) -> list[tuple[int, str]]:
        return [(index % COLOURS, name) for index, name in enumerate(self.chart.layers)]

    @property
    def left_out(self) -> int:
        return len(self.chart.groups) - len(self.views)

    @property
    def data(self) -> dict[str, object]:
        return {
            "layers": list(self.chart.layers),
            "unit": self.chart.unit,
            "group": self.chart.group_label,
            "views": [view.data for view in self.views],
        }


def gather(group: BarGroup) -> GatheredBars:
    """Join neighbours until the bars fit a screen."""
    values = np.array(group.layers, dtype=np.float64).reshape(len(group.layers), len(group.labels))
    values[~(np.abs(values) < 1e300)] = np.nan
    count = len(group.labels)
    edges = np.unique(np.linspace(0, count, min(count, MOST_BARS) + 1).astype(int)) if count else np.array([0])
    sums = np.nansum(values, axis=0)
    means = np.empty((len(group.layers), len(edges) - 1))
    for bar, (low, high) in enumerate(pairwise(edges)):
        means[:, bar] = [mean_of_finite(row) for row in values[:, low:high]]
    longest = np.maximum.reduceat(sums, edges[:-1]) if count else np.empty(0)
    return GatheredBars(group, edges.tolist(), means, longest)


def mean_of_finite(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def find_top(heights: Floats) -> float:
    """Return the end of the axis: the longest bar, unless it would press all others to the ground."""
    if not heights.size or heights.max() <= 0:
        return 1.0
    usual = float(np.percentile(heights, 95))
    return 1.25 * usual if 0 < usual * FAR_BEYOND < heights.max() else 1.06 * float(heights.max())


def draw_group(bars: GatheredBars, axis: Axis) -> GroupView:
    count = len(bars.first) - 1
    slot = 1000 / count if count else 1000.0
    width = min(slot * (0.8 if count <= SPACED else 1.0), 120.0)
    left = np.arange(count) * slot + (slot - width) / 2
    levels = np.vstack([np.zeros(count), np.nancumsum(bars.means, axis=0)])
    positions = 1000 * (1 - axis.place(levels).clip(0, 1))
    joined = len(bars.group.labels) > count
    cut = np.flatnonzero(bars.heights > axis.high)
    return GroupView(
        name=bars.group.name,
        paths=[draw_layer(left, width, low, high) for low, high in pairwise(positions)],
        marks=draw_marks(left, width, bars.longest, axis) if joined else "",
        cuts=[float((left[bar] + width / 2) / 1000) for bar in cut],
        x_ticks=label_bars(bars, count),
        note=write_note(bars, count, cut.tolist(), axis.high),
        summary=summarise(bars, count),
        data=interaction_data(bars, count, joined),
    )


def draw_layer(left: Floats, width: float, low: Floats, high: Floats) -> str:
    """Return all rectangles of a layer as one path."""
    return "".join(
        f"M{x:.1f} {bottom:.1f}h{width:.1f}V{top:.1f}h-{width:.1f}z"
        for x, bottom, top in zip(left.tolist(), low.tolist(), high.tolist(), strict=True)
        if bottom - top > 0.05
    )


def draw_marks(left: Floats, width: float, longest: Floats, axis: Axis) -> str:
    """Return a short stroke at the longest neighbour of each bar."""
    heights = (1000 * (1 - axis.place(longest).clip(0, 1))).tolist()
    return "".join(f"M{x:.1f} {y:.1f}h{width:.1f}" for x, y in zip(left.tolist(), heights, strict=True))


def label_bars(bars: GatheredBars, count: int) -> list[Tick]:
    """Return some labels under the bars, evenly spaced."""
    stride = next(step for step in STRIDES if step * MOST_LABELS >= count)
    return [Tick((bar + 0.5) / count, bars.group.labels[bars.first[bar]]) for bar in range(0, count, stride)]


def write_note(bars: GatheredBars, count: int, cut: list[int], top: float) -> str:
    """Say what neighbours share a bar, and what reaches beyond the chart."""
    parts = []
    if len(bars.group.labels) > count:
        parts.append(
            f"Each bar is the mean of about {len(bars.group.labels) / count:.0f} neighbours; "
            "the stroke above it marks the longest of them."
        )
        if bars.longest.max() > top:
            parts.append(f"Strokes at the upper edge lie beyond it, up to {bars.longest.max():,.4g}.")
    if cut:
        longest = max(cut, key=lambda bar: float(bars.heights[bar]))
        which = "1 bar reaches" if len(cut) == 1 else f"{len(cut)} bars reach"
        parts.append(
            f"{which} beyond the chart (▲), the longest at {bars.label(longest)}: {bars.heights[longest]:,.4g}."
        )
    return " ".join(parts)


def summarise(bars: GatheredBars, count: int) -> str:
    """Say what somebody hears who cannot see the bars."""
    if not count:
        return "no data"
    return f"{len(bars.group.labels):,} bars, the longest {float(bars.longest.max()):,.4g}"


def interaction_data(bars: GatheredBars, count: int, joined: bool) -> dict[str, object]:
    """Return what the script needs to answer a pointer."""
    return {
        "name": bars.group.name,
        "labels": [bars.label(bar) for bar in range(count)],
        "layers": [[round_off(value) for value in layer] for layer in bars.means.tolist()],
        "longest": [round_off(value) for value in bars.longest.tolist()] if joined else [],
    }


def round_off(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None
