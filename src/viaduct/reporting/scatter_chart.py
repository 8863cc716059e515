"""Scatter chart with a logarithmic vertical axis; each point has a tone, which gives its colour and shape.

All points of a tone are one SVG path of zero-length strokes, whose round caps are the dots; five thousand points take
five elements. A logarithmic axis cannot show zero, NaN and infinity: zeros are drawn on a line below it, NaN and
infinity on a line above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick, fit_x_axis, fit_y_axis
from viaduct.reporting.line_chart import draw_path
from viaduct.reporting.texts import shorten_name
from viaduct.reporting.tones import SIGNS, TONES, Tone

MARGIN = 0.08  # fraction of the height for the line of zeros, and for the line of values that are not finite
CLOSEST_LEVELS = 0.035  # distance, as a fraction of the height, below which two levels share one label
MAX_SPANS = 60  # with more spans than this, none is drawn
DRAWN_SIZES = (1e-140, 1e140)  # values beyond these are drawn at these ends, because a log axis cannot span them
# Width of a letter as a fraction of the chart, on a desktop and on a phone.
LETTER_WIDTH, LETTER_WIDTH_ON_PHONE = 0.0105, 0.027
MAX_LETTERS = 41  # letters of the mark's label; a longer label loses its middle


@dataclass(frozen=True)
class Point:
    """One point. `y` may be zero, infinite or NaN, and a negative one is drawn at its absolute value.

    A click leads to `address`, such as `#rows-57`.
    """

    x: float
    y: float
    tone: Tone
    label: str
    address: str = ""
    text: str = ""  # text after the label in the read-out; empty: the value of y


@dataclass(frozen=True)
class Roof:
    """A line through some corners, such as the limits of a roofline; its label is at the last or first corner."""

    label: str
    corners: Sequence[tuple[float, float]]
    labelled_at_end: bool = True


@dataclass(frozen=True)
class Level:
    """A line across the chart, such as a threshold."""

    y: float
    label: str


@dataclass(frozen=True)
class Span:
    """A named range of the horizontal axis, such as a stage of the network."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class ScatterChart:
    """Points, levels and roofs over named spans of the horizontal axis.

    `marked` is the index of the point that the page is about, `mark` its label.
    """

    template: ClassVar[str] = "scatter_chart.html"

    title: str
    x_label: str
    y_label: str
    points: Sequence[Point]
    levels: Sequence[Level] = ()
    spans: Sequence[Span] = ()
    names: Sequence[tuple[Tone, str]] = ()  # the legend: the meaning of each tone
    marked: int | None = None
    mark: str = ""
    roofs: Sequence[Roof] = ()
    log_x: bool = False  # a log scale for x too; then every x and every corner of a roof must be above zero

    @property
    def mark_text(self) -> str:
        return shorten_name(self.mark, MAX_LETTERS)

    @property
    def short_mark(self) -> str:
        """Return the label for a phone: `origin` of `origin: layer3.0.bn2`."""
        return self.mark.partition(":")[0]

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        tones = [point.tone for point in self.points]
        parts = [f"{tones.count(tone)} {name}" for tone, name in self.names if tone in tones]
        return f"{len(tones)} points: {', '.join(parts)}" if parts else f"{len(tones)} points"

    def drawing(self) -> ScatterDrawing:
        x = np.array([point.x for point in self.points], float)
        y = clip_sizes(np.array([point.y for point in self.points], float))
        corners = np.array([corner for roof in self.roofs for corner in roof.corners], float).reshape(-1, 2)
        levels = np.concatenate([np.array([level.y for level in self.levels], float), corners[:, 1]])
        frame = Frame.around(np.concatenate([x, corners[:, 0]]), y, levels, self.log_x)
        positions = np.stack([frame.x_axis.compute_positions(x), 1 - frame.compute_heights(y)], axis=1)
        present = {point.tone for point in self.points}
        y_ticks = [Tick(frame.squeeze(tick.position), tick.label) for tick in frame.y_axis.ticks(7)] if x.size else []
        return ScatterDrawing(
            x_ticks=frame.x_axis.ticks(7, integers=not self.log_x) if x.size else [],
            y_ticks=y_ticks,
            frame=frame,
            strokes=[(tone, draw_dots(positions, self.points, tone)) for tone in reversed(TONES) if tone in present],
            legend=[(tone, SIGNS[tone], name) for tone, name in self.names if tone in present],
            levels=merge_close_levels([(frame.compute_height(level.y), level.label) for level in self.levels]),
            spans=draw_spans(self.spans, frame.x_axis),
            mark=tuple(positions[self.marked]) if self.marked is not None else None,
            data=make_readout_data(self.points, positions),
            roofs=[draw_roof(roof, frame) for roof in self.roofs],
        )


@dataclass(frozen=True)
class Frame:
    """Both axes; `has_zeros`: a line for zeros is below them; `has_not_finite`: one for NaN and infinity is above."""

    x_axis: Axis
    y_axis: Axis
    has_zeros: bool
    has_not_finite: bool

    @classmethod
    def around(cls, x: Floats, y: Floats, levels: Floats, log_x: bool = False) -> Frame:
        """Return the frame that fits the points and the levels above zero."""
        finite = np.isfinite(y)
        x_axis = fit_y_axis(x, log=True) if log_x else fit_x_axis(x)
        y_axis = fit_y_axis(np.concatenate([y[finite & (y > 0)], levels[levels > 0]]), log=True)
        return cls(x_axis, y_axis, bool((y == 0).any()), bool((~finite).any()))

    def squeeze(self, height: float) -> float:
        """Convert a height on the vertical axis (0 to 1) to a height in the chart, between the two lines."""
        low, high = MARGIN * self.has_zeros, 1 - MARGIN * self.has_not_finite
        return low + height * (high - low)

    def compute_heights(self, y: Floats) -> Floats:
        """Return the height of each value in the chart, from 0 to 1."""
        low, high = self.squeeze(0), self.squeeze(1)
        heights = low + self.y_axis.compute_positions(np.where(np.isfinite(y), y, np.nan)) * (high - low)
        heights[y == 0] = low / 2
        heights[~np.isfinite(y)] = (1 + high) / 2
        return heights

    def compute_height(self, y: float) -> float:
        return self.squeeze(float(self.y_axis.compute_positions(np.array([y]))[0]))


@dataclass(frozen=True)
class RoofDrawing:
    """A roof as an SVG path in a square of 1000, and the position of its label."""

    label: str
    path: str
    x: float
    y: float
    at_end: bool


@dataclass(frozen=True)
class ScatterDrawing:
    """Points as the template needs them; positions are fractions of the chart.

    `strokes`: tone and SVG path; `legend`: tone, sign, meaning; `levels`: height and label; `spans`: left edge, width,
    name (empty: it does not fit) and whether the name fits on a phone; `mark`: x and y of the marked point.
    """

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
    not_finite_label: ClassVar[str] = "NaN, ∞"

    @property
    def y_labels(self) -> list[str]:
        labels = [tick.label for tick in self.y_ticks]
        return [*labels, self.not_finite_label] if self.frame.has_not_finite else labels


def clip_sizes(values: Floats) -> Floats:
    """Return absolute values; those that are finite and not zero are clipped to DRAWN_SIZES."""
    sizes = np.abs(values)
    has_logarithm = np.isfinite(sizes) & (sizes > 0)
    sizes[has_logarithm] = sizes[has_logarithm].clip(*DRAWN_SIZES)
    return sizes


def draw_roof(roof: Roof, frame: Frame) -> RoofDrawing:
    corners = np.array(roof.corners, float)
    x, y = frame.x_axis.compute_positions(corners[:, 0]), 1 - frame.compute_heights(corners[:, 1])
    end = -1 if roof.labelled_at_end else 0
    return RoofDrawing(roof.label, draw_path(x, y), float(x[end]), float(y[end]), roof.labelled_at_end)


def draw_dots(positions: Floats, points: Sequence[Point], tone: Tone) -> str:
    """Return an SVG path with a zero-length stroke at each point of a tone."""
    pairs = zip(positions.tolist(), points, strict=True)
    return "".join(f"M{x * 1000:.1f} {y * 1000:.1f}h0" for (x, y), point in pairs if point.tone == tone)


def merge_close_levels(levels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Merge levels that are too close to have a label each; they share a label at the lowest."""
    merged: list[tuple[float, str]] = []
    for height, label in sorted(levels):
        if merged and height - merged[-1][0] < CLOSEST_LEVELS:
            merged[-1] = (merged[-1][0], f"{merged[-1][1]}, {label}")
        else:
            merged.append((height, label))
    return merged


def draw_spans(spans: Sequence[Span], x_axis: Axis) -> list[tuple[float, float, str, bool]]:
    """Return the spans as `ScatterDrawing.spans` describes them; none if there are too many."""
    if len(spans) > MAX_SPANS:
        return []
    ends = np.array([[span.low, span.high] for span in spans], float).reshape(-1, 2)
    edges = x_axis.compute_positions(ends).clip(0, 1)
    drawn = []
    for (low, high), span in zip(edges.tolist(), spans, strict=True):
        width, letters = high - low, len(span.label) + 1
        name = span.label if width > LETTER_WIDTH * letters else ""
        drawn.append((low, width, name, width > LETTER_WIDTH_ON_PHONE * letters))
    return drawn


def make_readout_data(points: Sequence[Point], positions: Floats) -> dict[str, object]:
    """Return position, label and link of each point, from which the script makes the read-out under the pointer."""
    return {
        "x": [round(x, 4) for x in positions[:, 0].tolist()],
        "y": [round(y, 4) for y in positions[:, 1].tolist()],
        "value": [float(f"{point.y:.4g}") if np.isfinite(point.y) else str(point.y) for point in points],
        "tone": [TONES.index(point.tone) for point in points],
        "label": [point.label for point in points],
        "address": [point.address for point in points],
        "text": [point.text for point in points],
        "tones": list(TONES),
    }
