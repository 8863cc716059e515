"""Many points over a common axis, each with a tone: small dots for what is well, other shapes for what is not.

All points of a tone are one path of strokes without length, whose caps are the marks; five thousand points are then
five elements, and need no script to be seen. On a logarithmic axis zero has its own line at the foot, and what is not
finite has one at the head, since both are answers and neither may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick, across, upward
from viaduct.reporting.tones import SIGNS, TONES, Tone

MARGIN = 0.08
"""Share of the height that the line of zeros, or that of what is not finite, takes."""
CLOSEST_LEVELS = 0.035
MOST_SPANS = 60
REACH = (1e-140, 1e140)
LETTER = 0.0105
"""Width of a letter as a share of a chart on a desk; a name that does not fit there is left out."""
LETTER_ON_PHONE = 0.027
MOST_LETTERS = 40


@dataclass(frozen=True)
class Point:
    """`address` is where a click leads, `#rows-57`; `y` may be zero, infinite or NaN."""

    x: float
    y: float
    tone: Tone
    label: str
    address: str = ""
    text: str = ""
    """What the read-out says behind the label; empty: the value of y."""


@dataclass(frozen=True)
class Roof:
    """A line through some corners, as the limits of a roofline are; its label stands at the last or first corner."""

    label: str
    corners: Sequence[tuple[float, float]]
    labelled_at_end: bool = True


@dataclass(frozen=True)
class Level:
    """A value worth a line across the chart, such as a threshold."""

    y: float
    label: str


@dataclass(frozen=True)
class Span:
    """A stretch of the horizontal axis with a name: a stage of the network."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class ScatterChart:
    """`marked` is the position of the one point that the page is about."""

    template: ClassVar[str] = "scatter_chart.html"

    title: str
    x_label: str
    y_label: str
    points: Sequence[Point]
    levels: Sequence[Level] = ()
    spans: Sequence[Span] = ()
    names: Sequence[tuple[Tone, str]] = ()  # the legend
    marked: int | None = None
    mark: str = ""
    roofs: Sequence[Roof] = ()
    log_x: bool = False
    """A log scale across, too: every x, and every corner of a roof, is above zero."""

    def drawing(self) -> ScatterDrawing:
        x = np.array([point.x for point in self.points], float)
        y = within_reach(np.array([point.y for point in self.points], float))
        corners = np.array([corner for roof in self.roofs for corner in roof.corners], float).reshape(-1, 2)
        levels = np.concatenate([np.array([level.y for level in self.levels], float), corners[:, 1]])
        frame = Frame.around(np.concatenate([x, corners[:, 0]]), y, levels, self.log_x)
        positions = np.stack([frame.horizontal.place(x), 1 - frame.place(y)], axis=1)
        present = {point.tone for point in self.points}
        return ScatterDrawing(
            chart=self,
            x_ticks=frame.horizontal.ticks(7, whole=not self.log_x) if x.size else [],
            y_ticks=[Tick(frame.squeeze(tick.place), tick.label) for tick in frame.vertical.ticks(7)] if x.size else [],
            frame=frame,
            strokes=[(tone, strokes(positions, self.points, tone)) for tone in reversed(TONES) if tone in present],
            legend=[(tone, SIGNS[tone], name) for tone, name in self.names if tone in present],
            levels=separate_labels([(frame.level(level.y), level.label) for level in self.levels]),
            spans=named_spans(self.spans, frame.horizontal),
            mark=tuple(positions[self.marked]) if self.marked is not None else None,
            data=interaction_data(self.points, positions),
            roofs=[draw_roof(roof, frame) for roof in self.roofs],
        )


@dataclass(frozen=True)
class Frame:
    """Both axes, and whether the foot and the head of the chart are set apart for zero and for what is not finite."""

    horizontal: Axis
    vertical: Axis
    foot: bool
    head: bool

    @classmethod
    def around(cls, x: Floats, y: Floats, levels: Floats, log_x: bool = False) -> Frame:
        finite = y[np.isfinite(y) & (y > 0)]
        vertical = upward(np.concatenate([finite, levels[levels > 0]]), log=True)
        return cls(
            upward(x, log=True) if log_x else across(x), vertical, bool((y == 0).any()), bool((~np.isfinite(y)).any())
        )

    def squeeze(self, place: float) -> float:
        low, high = MARGIN * self.foot, 1 - MARGIN * self.head
        return low + place * (high - low)

    def place(self, y: Floats) -> Floats:
        inner = self.vertical.place(np.where(np.isfinite(y), y, np.nan))
        low, high = self.squeeze(0), self.squeeze(1)
        placed = low + inner * (high - low)
        placed[y == 0] = low / 2
        placed[~np.isfinite(y)] = (1 + high) / 2
        return placed

    def level(self, y: float) -> float:
        return self.squeeze(float(self.vertical.place(np.array([y]))[0]))


@dataclass(frozen=True)
class RoofDrawing:
    """A roof as a path in a square of 1000, and where its label stands."""

    label: str
    path: str
    x: float
    y: float
    at_end: bool


@dataclass(frozen=True)
class ScatterDrawing:
    """Points as the template needs them."""

    chart: ScatterChart
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    frame: Frame
    strokes: Sequence[tuple[Tone, str]]
    legend: Sequence[tuple[Tone, str, str]]
    levels: Sequence[tuple[float, str]]
    spans: Sequence[tuple[float, float, str, bool]]
    mark: tuple[float, ...] | None
    data: dict[str, object]
    roofs: Sequence[RoofDrawing] = ()

    @property
    def gutter(self) -> int:
        """Room for the longest label of the vertical axis, in characters."""
        edge = ["NaN, ∞"] if self.frame.head else []
        return max(map(len, [*(tick.label for tick in self.y_ticks), *edge]), default=1)

    @property
    def mark_text(self) -> str:
        """The label of the marked point; the middle of one that is too long for the chart is left out."""
        text, side = self.chart.mark, MOST_LETTERS // 2
        return text if len(text) <= MOST_LETTERS else f"{text[:side]}…{text[-side:]}"

    @property
    def short_mark(self) -> str:
        """Return the mark's short form for a phone: `origin` of `origin: layer3.0.bn2`."""
        return self.chart.mark.partition(":")[0]

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        tones = [point.tone for point in self.chart.points]
        parts = [f"{tones.count(tone)} {name}" for tone, name in self.chart.names if tone in tones]
        return f"{len(tones)} points: {', '.join(parts)}" if parts else f"{len(tones)} points"


def within_reach(values: Floats) -> Floats:
    """Sizes; those that an axis could not span any more are drawn at its ends."""
    sizes = np.abs(values)
    measured = np.isfinite(sizes) & (sizes > 0)
    sizes[measured] = sizes[measured].clip(*REACH)
    return sizes


def draw_roof(roof: Roof, frame: Frame) -> RoofDrawing:
    corners = np.array(roof.corners, float)
    x, y = frame.horizontal.place(corners[:, 0]), 1 - frame.place(corners[:, 1])
    path = "M" + "L".join(f"{1000 * across:.1f} {1000 * down:.1f}" for across, down in zip(x, y, strict=True))
    position = -1 if roof.labelled_at_end else 0
    return RoofDrawing(roof.label, path, float(x[position]), float(y[position]), roof.labelled_at_end)


def strokes(places: Floats, points: Sequence[Point], tone: Tone) -> str:
    """A move and a stroke of no length for every point of a tone."""
    corners = [index for index, point in zip(places.tolist(), points, strict=True) if point.tone == tone]
    return "".join(f"M{x * 1000:.1f} {y * 1000:.1f}h0" for x, y in corners)


def separate_labels(levels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Merge the labels of levels that are too close; the label stands at the first of them."""
    kept: list[tuple[float, str]] = []
    for position, label in sorted(levels):
        if kept and position - kept[-1][0] < CLOSEST_LEVELS:
            kept[-1] = (kept[-1][0], f"{kept[-1][1]}, {label}")
        else:
            kept.append((position, label))
    return kept


def named_spans(spans: Sequence[Span], horizontal: Axis) -> list[tuple[float, float, str, bool]]:
    """Start, width and name of each span, and whether a phone has room for the name.

    A name that would not fit is left out, and so are too many spans.
    """
    if len(spans) > MOST_SPANS:
        return []
    edges = horizontal.place(np.array([[span.low, span.high] for span in spans], float).reshape(-1, 2)).clip(0, 1)
    return [
        (
            low,
            high - low,
            span.label if high - low > LETTER * (len(span.label) + 1) else "",
            high - low > LETTER_ON_PHONE * (len(span.label) + 1),
        )
        for (low, high), span in zip(edges.tolist(), spans, strict=True)
    ]


def interaction_data(points: Sequence[Point], places: Floats) -> dict[str, object]:
    """Return position, label and link of each point, for the script that answers a pointer."""
    return {
        "x": [round(x, 4) for x in places[:, 0].tolist()],
        "y": [round(y, 4) for y in places[:, 1].tolist()],
        "value": [float(f"{point.y:.4g}") if np.isfinite(point.y) else str(point.y) for point in points],
        "tone": [TONES.index(point.tone) for point in points],
        "label": [point.label for point in points],
        "address": [point.address for point in points],
        "text": [point.text for point in points],
        "tones": list(TONES),
    }
