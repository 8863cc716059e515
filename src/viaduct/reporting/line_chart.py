"""Lines over a common axis, drawn here as SVG; the page's script adds the read-out under the pointer and the button for
the other scale.

Coordinates are shares of the plot (0 to 100 %, and 0 to 1000 inside paths), so that one drawing fits any
width with letters and strokes at their own size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick, across, upward
from viaduct.reporting.thinning import thin

COLOURS = 6
"""How many `--line-…` colours page.css has; the seventh series is the first colour again, dashed."""
LARGEST = 1e300
"""Beyond it differences overflow; a loss this high has left the chart anyway. Below its inverse, a value is 0."""
DECADES = 100.0
"""Largest over smallest value above zero from which on a chart opens with a log scale."""
WORTH_A_BUTTON = 10.0
"""The same ratio from which on the other scale is offered."""


@dataclass(frozen=True)
class Series:
    """One line; a value that is None, NaN or infinite leaves a gap in it. `dots`: its points are not joined."""

    name: str
    x: Sequence[float | None] | Floats
    y: Sequence[float | None] | Floats
    dots: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} x for {len(self.y)} y values.")


@dataclass(frozen=True)
class LineChart:
    """Lines of one quantity.

    `log_y` None: a log scale where the values span decades and none is negative, and a button for the other scale.
    True: a log scale, which leaves out what is not above zero and says so. False: always linear (shares, speeds).
    `unit` stands behind the name of the axis and in the read-out.
    """

    template: ClassVar[str] = "line_chart.html"

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool | None = None
    unit: str = ""
    includes: Sequence[float] = ()
    """Values that the vertical axis shows in any case, such as 0 and 100 of a percentage."""

    def drawing(self) -> ChartDrawing:
        lines = [read_points(series) for series in self.series]
        x = join([line.x[line.present] for line in lines])
        y = join([line.y[line.present] for line in lines])
        y = join([y, np.array(self.includes, dtype=np.float64)]) if y.size else y
        horizontal = across(x)
        complete = bool((x == np.round(x)).all())
        scales = choose_scales(y, self.log_y)
        return ChartDrawing(
            chart=self,
            x_ticks=horizontal.ticks(7, complete) if x.size else [],
            views=[draw_view(lines, horizontal, y, log) for log in scales],
            data=interaction_data(lines, horizontal, [upward(y, log) for log in scales], self.unit),
        )


@dataclass(frozen=True)
class Points:
    """A series as arrays; `present` marks the points that are finite."""

    name: str
    x: Floats
    y: Floats
    dots: bool = False

    @property
    def present(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return a mask of the points that have a value."""
        return np.isfinite(self.y)

    def on_scale(self, log: bool) -> Points:
        """The same points, without those that a log scale cannot show."""
        return Points(self.name, self.x, np.where(self.y > 0, self.y, np.nan), self.dots) if log else self


@dataclass(frozen=True)
class LineDrawing:
    """One series as the template needs it: its stroke, and dots for isolated points."""

    name: str
    colour: int
    dashed: bool
    path: str
    dots: Sequence[tuple[float, float]]
    summary: str


@dataclass(frozen=True)
class ChartView:
    """The chart on one of its scales."""

    log: bool
    y_ticks: Sequence[Tick]
    lines: Sequence[LineDrawing]
    note: str

    @property
    def gutter(self) -> int:
        """Room for the longest label of the vertical axis, in characters."""
        return max((len(tick.label) for tick in self.y_ticks), default=1)

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        lines = "; ".join(f"{line.name}: {line.summary}" for line in self.lines) or "no data"
        return f"Log scale. {lines}" if self.log else lines


@dataclass(frozen=True)
class ChartDrawing:
    """The first of the views is shown; the script has a button for a second."""

    chart: LineChart
    x_ticks: Sequence[Tick]
    views: Sequence[ChartView]
    data: dict[str, object]

    @property
    def lines(self) -> Sequence[LineDrawing]:
        return self.views[0].lines

    @property
    def y_name(self) -> str:
        return f"{self.chart.y_label} ({self.chart.unit})" if self.chart.unit else self.chart.y_label


def join(arrays: Sequence[Floats]) -> Floats:
    return np.concatenate(arrays) if arrays else np.empty(0)


def read_points(series: Series) -> Points:
    """Turn everything without a place on the chart into NaN; a point without x is dropped."""
    x, y = np.array(series.x, dtype=np.float64), np.array(series.y, dtype=np.float64)
    y[~(np.abs(y) < LARGEST)] = np.nan
    y[np.abs(y) < 1 / LARGEST] = 0
    placed = np.abs(x) < LARGEST
    return Points(series.name, x[placed], y[placed], series.dots)


def choose_scales(y: Floats, log_y: bool | None) -> list[bool]:
    """True for a log scale; the first is shown, the second offered. A negative value has no logarithm to be shown."""
    if log_y is not None:
        return [log_y]
    above = y[y > 0]
    if not above.size or (y < 0).any() or above.max() <= WORTH_A_BUTTON * above.min():
        return [False]
    spans_decades = bool(above.max() > DECADES * above.min())
    return [spans_decades, not spans_decades]


def draw_view(lines: Sequence[Points], horizontal: Axis, y: Floats, log: bool) -> ChartView:
    vertical = upward(y, log)
    shown = [line.on_scale(log) for line in lines]
    return ChartView(
        log=log,
        y_ticks=vertical.ticks(7) if any(line.present.any() for line in shown) else [],
        lines=[draw_line(position, line, horizontal, vertical) for position, line in enumerate(shown)],
        note=name_gaps(join([line.y for line in lines]), log),
    )


def name_gaps(y: Floats, log: bool) -> str:
    """Say what is missing from the lines, and why."""
    lost = int((~np.isfinite(y)).sum())
    parts = [f"{count(lost)} NaN or infinite"] if lost else []
    if log:
        zeros, below = int((y == 0).sum()), int((y < 0).sum())
        parts += [f"{count(zeros)} zero"] if zeros else []
        parts += [f"{count(below)} negative"] if below else []
    scale = ", which a log scale cannot show" if len(parts) > bool(lost) else ""
    return f"Gaps in the lines: {', '.join(parts)}{scale}." if parts else ""


def count(values: int) -> str:
    return f"{values:,} {'value is' if values == 1 else 'values are'}"


def draw_line(position: int, line: Points, horizontal: Axis, vertical: Axis) -> LineDrawing:
    kept = thin(line.y)
    x, y = horizontal.place(line.x[kept]), 1 - vertical.place(line.y[kept])
    stretches = [np.array([index]) for run in unbroken(y) for index in run] if line.dots else unbroken(y)
    dots = [(float(x[run[0]]), float(y[run[0]])) for run in stretches if len(run) == 1]
    return LineDrawing(
        name=line.name,
        colour=position % COLOURS,
        dashed=position // COLOURS % 2 == 1,
        path="".join(draw_stroke(x[run], y[run]) for run in stretches if len(run) > 1),
        dots=dots,
        summary=describe(line),
    )


def unbroken(y: Floats) -> list[Floats]:
    """Split positions at every value that is not finite; the gaps themselves are left out."""
    finite = np.isfinite(y)
    edges = np.flatnonzero(np.diff(finite)) + 1
    return [run for run in np.split(np.arange(len(y)), edges) if len(run) and finite[run[0]]]


def draw_stroke(x: Floats, y: Floats) -> str:
    corners = [f"{across * 1000:.1f} {down * 1000:.1f}" for across, down in zip(x, y, strict=True)]
    return "M" + "L".join(corners)


def describe(line: Points) -> str:
    values = line.y[line.present]
    if not values.size:
        return "no data"
    return f"{values.size} points from {values.min():.4g} to {values.max():.4g}, last {values[-1]:.4g}"


def interaction_data(
    lines: Sequence[Points], horizontal: Axis, verticals: Sequence[Axis], unit: str
) -> dict[str, object]:
    """Return the thinned points and axes that the script needs to answer a pointer."""
    return {
        "x": [horizontal.low, horizontal.high],
        "views": [{"y": [vertical.low, vertical.high], "log": vertical.log} for vertical in verticals],
        "unit": unit,
        "series": [{"name": line.name, **thin_points(line)} for line in lines],
    }


def thin_points(line: Points) -> dict[str, list[float | None]]:
    """Points as JSON can say them: it has no NaN, and no reader needs the eighth digit."""
    kept = thin(line.y)
    y = [float(f"{value:.7g}") if np.isfinite(value) else None for value in line.y[kept]]
    return {"x": [shorten(value) for value in line.x[kept]], "y": y}


def shorten(value: float) -> float:
    return int(value) if float(value).is_integer() else float(f"{value:.10g}")
