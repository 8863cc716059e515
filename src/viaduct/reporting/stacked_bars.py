"""Stacked bars: the phases of each step, or of each rank. Groups of bars share one scale; one group is shown at a time.

If there are more bars than a screen has room for, neighbours are joined into one bar: their mean, with a mark at the
longest of them. Bars far longer than the others are cut at the top and marked with a triangle; the longest is named
under the chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick
from viaduct.reporting.figures import round_digits
from viaduct.reporting.line_chart import COLOURS, MAX_VALUE, concatenate

MAX_BARS = 180  # with more bars than this in a group, neighbours are joined
MAX_GROUPS = 32  # groups beyond this number are not drawn, which a note says
MAX_SPACED_BARS = 90  # with more bars than this, there are no gaps between them
MAX_LABELS = 10  # labels below the bars
MAX_WIDTH = 120.0  # of a bar; the chart is 1000 wide
MIN_HEIGHT = 0.05  # of a layer; a lower one is left out of the chart, which is 1000 high
STRIDES = (1, 2, 5, 10, 20)  # distances between labelled bars; the smallest that leaves at most MAX_LABELS is taken
# If the longest bar exceeds this multiple of the 95th percentile, the axis ends a quarter above the percentile.
OUTLIER_RATIO = 4.0


@dataclass(frozen=True)
class BarGroup:
    """Bars that are shown together, such as the steps of one rank.

    `labels` has one entry for each bar. `layers` has a row for each layer, with a value for each bar or None if it was
    not measured.
    """

    name: str
    labels: Sequence[str]
    layers: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class StackedBars:
    """Groups of stacked bars; `group_label` names the choice of a group."""

    template: ClassVar[str] = "stacked_bars.html"

    title: str
    x_label: str
    y_label: str
    layer_names: Sequence[str]  # from the bottom up
    groups: Sequence[BarGroup]
    unit: str = ""
    group_label: str = "group"

    def __post_init__(self) -> None:
        for group in self.groups:
            if len(group.layers) != len(self.layer_names):
                counts = f"{len(group.layers)} layers for {len(self.layer_names)} names"
                raise ValueError(f"group {group.name!r} has {counts}.")
            if any(len(layer) != len(group.labels) for layer in group.layers):
                raise ValueError(f"group {group.name!r} has {len(group.labels)} labels for other numbers of values.")

    @cached_property
    def joined(self) -> list[DrawnBars]:
        """The bars of each group that is drawn."""
        return [join_neighbours(group) for group in self.groups[:MAX_GROUPS]]

    @cached_property
    def axis(self) -> Axis:
        """The vertical axis, which all groups share."""
        return Axis(0.0, find_top(concatenate([bars.heights for bars in self.joined])))

    @property
    def y_ticks(self) -> list[Tick]:
        return self.axis.ticks(6) if any(bars.count for bars in self.joined) else []

    @cached_property
    def views(self) -> list[GroupView]:
        return [draw_group(bars, self.axis) for bars in self.joined]

    @property
    def legend(self) -> list[tuple[int, str]]:
        """Return the number of the colour and the name of each layer."""
        return [(index % COLOURS, name) for index, name in enumerate(self.layer_names)]

    @property
    def data(self) -> dict[str, object]:
        """Return what the script needs."""
        data = [view.data for view in self.views]
        return {"layers": list(self.layer_names), "unit": self.unit, "group": self.group_label, "views": data}


@dataclass(frozen=True)
class DrawnBars:
    """The bars that are drawn for a group; each joins one or more neighbours."""

    group: BarGroup
    edges: Sequence[int]  # index of the first neighbour of each drawn bar, then the number of all bars
    means: Floats  # layers x drawn bars; NaN if nothing was measured
    longest: Floats  # height of the longest neighbour of each drawn bar

    @property
    def count(self) -> int:
        return len(self.edges) - 1

    @property
    def are_joined(self) -> bool:
        """Return True if some drawn bars join several neighbours."""
        return len(self.group.labels) > self.count

    @property
    def heights(self) -> Floats:
        heights: Floats = np.nansum(self.means, axis=0)
        return heights

    def format_label(self, bar: int) -> str:
        """Return the label of a drawn bar: a range if it joins several."""
        first, last = self.edges[bar], self.edges[bar + 1] - 1
        labels = self.group.labels
        return labels[first] if first == last else f"{labels[first]}–{labels[last]}"


@dataclass(frozen=True)
class GroupView:
    """One group of bars as the template and the script need it.

    `paths` are SVG paths by layer, `marks` one path for the longest neighbours, `cuts` the x of bars cut at the top.
    """

    name: str
    paths: Sequence[str]
    marks: str
    cuts: Sequence[float]
    x_ticks: Sequence[Tick]
    note: str
    summary: str
    data: dict[str, object]


def join_neighbours(group: BarGroup) -> DrawnBars:
    """Join neighbours evenly into at most MAX_BARS bars."""
    values = np.array(group.layers, dtype=np.float64).reshape(len(group.layers), len(group.labels))
    values[~(np.abs(values) < MAX_VALUE)] = np.nan
    count = len(group.labels)
    edges = np.unique(np.linspace(0, count, min(count, MAX_BARS) + 1).astype(int)) if count else np.array([0])
    sums = np.nansum(values, axis=0)
    totals = np.add.reduceat(np.nan_to_num(values), edges[:-1], axis=1)
    counts = np.add.reduceat(np.isfinite(values), edges[:-1], axis=1, dtype=np.int64)
    means = np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)
    longest = np.maximum.reduceat(sums, edges[:-1]) if count else np.empty(0)
    return DrawnBars(group, edges.tolist(), means, longest)


def find_top(heights: Floats) -> float:
    """Return the upper end of the axis: just above the longest bar, or lower if outliers would flatten all others."""
    if not heights.size or heights.max() <= 0:
        return 1.0
    usual = float(np.percentile(heights, 95))
    return 1.25 * usual if 0 < usual * OUTLIER_RATIO < heights.max() else 1.06 * float(heights.max())


def draw_group(bars: DrawnBars, axis: Axis) -> GroupView:
    """Draw the bars of a group; `axis` is the vertical axis of all groups."""
    count = bars.count
    slot = 1000 / count if count else 1000.0
    width = min(slot * (0.8 if count <= MAX_SPACED_BARS else 1.0), MAX_WIDTH)
    left = np.arange(count) * slot + (slot - width) / 2
    levels = np.vstack([np.zeros(count), np.nancumsum(bars.means, axis=0)])
    positions = 1000 * (1 - axis.compute_positions(levels).clip(0, 1))
    cut = np.flatnonzero(bars.heights > axis.high)
    labels = bars.group.labels
    return GroupView(
        name=bars.group.name,
        paths=[draw_layer(left, width, low, high) for low, high in pairwise(positions)],
        marks=draw_marks(left, width, bars.longest, axis) if bars.are_joined else "",
        cuts=[float((left[bar] + width / 2) / 1000) for bar in cut],
        x_ticks=label_bars(bars),
        note=make_note(bars, cut.tolist(), axis.high),
        summary=f"{len(labels):,} bars, the longest {float(bars.longest.max()):,.4g}" if count else "no data",
        data=make_readout_data(bars),
    )


def draw_layer(left: Floats, width: float, low: Floats, high: Floats) -> str:
    return "".join(
        f"M{x:.1f} {bottom:.1f}h{width:.1f}V{top:.1f}h-{width:.1f}z"
        for x, bottom, top in zip(left.tolist(), low.tolist(), high.tolist(), strict=True)
        if bottom - top > MIN_HEIGHT
    )


def draw_marks(left: Floats, width: float, longest: Floats, axis: Axis) -> str:
    """Return a path with a stroke at the height of the longest neighbour that each bar joins."""
    heights = (1000 * (1 - axis.compute_positions(longest).clip(0, 1))).tolist()
    return "".join(f"M{x:.1f} {y:.1f}h{width:.1f}" for x, y in zip(left.tolist(), heights, strict=True))


def label_bars(bars: DrawnBars) -> list[Tick]:
    """Return evenly spaced labels under the bars."""
    count = bars.count
    stride = next(stride for stride in STRIDES if stride * MAX_LABELS >= count)
    return [Tick((bar + 0.5) / count, bars.group.labels[bars.edges[bar]]) for bar in range(0, count, stride)]


def make_note(bars: DrawnBars, cut: list[int], top: float) -> str:
    """Return sentences about joined neighbours and about bars and marks beyond the top of the chart."""
    parts = []
    if bars.are_joined:
        parts.append(
            f"Each bar is the mean of about {len(bars.group.labels) / bars.count:.0f} neighbours; "
            "the stroke above it marks the longest of them."
        )
        if bars.longest.max() > top:
            parts.append(f"Strokes at the upper edge lie beyond it, up to {bars.longest.max():,.4g}.")
    if cut:
        longest = max(cut, key=lambda bar: float(bars.heights[bar]))
        subject = "1 bar reaches" if len(cut) == 1 else f"{len(cut)} bars reach"
        height = f"{bars.heights[longest]:,.4g}"
        parts.append(f"{subject} beyond the chart (▲), the longest at {bars.format_label(longest)}: {height}.")
    return " ".join(parts)


def make_readout_data(bars: DrawnBars) -> dict[str, object]:
    """Return what the script needs for the read-out under the pointer."""
    return {
        "name": bars.group.name,
        "labels": [bars.format_label(bar) for bar in range(bars.count)],
        "layers": [[round_digits(value, 5) for value in layer] for layer in bars.means.tolist()],
        "longest": [round_digits(value, 5) for value in bars.longest.tolist()] if bars.are_joined else [],
    }
