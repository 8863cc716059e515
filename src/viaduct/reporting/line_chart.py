"""Lines over a common axis, drawn here as SVG; the page's script adds only the read-out under the pointer.

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
"""Beyond it differences overflow; a loss this high has left the chart anyway."""


@dataclass(frozen=True)
class Series:
    """One line; a value that is None, NaN or infinite leaves a gap in it."""

    name: str
    x: Sequence[float | None] | Floats
    y: Sequence[float | None] | Floats

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} x for {len(self.y)} y values.")


@dataclass(frozen=True)
class LineChart:
    """Lines of one quantity; `log_y` suits learning rates, and leaves out what is not above zero."""

    template: ClassVar[str] = "line_chart.html"

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool = False

    def drawing(self) -> ChartDrawing:
        lines = [drawable(series, self.log_y) for series in self.series]
        x = np.concatenate([line.x[line.present] for line in lines]) if lines else np.empty(0)
        y = np.concatenate([line.y[line.present] for line in lines]) if lines else np.empty(0)
        horizontal, vertical = across(x), upward(y, self.log_y)
        whole = bool((x == np.round(x)).all())
        return ChartDrawing(
            chart=self,
            x_ticks=horizontal.ticks(7, whole) if x.size else [],
            y_ticks=vertical.ticks(7) if y.size else [],
            lines=[draw_line(position, line, horizontal, vertical) for position, line in enumerate(lines)],
            gaps=sum(line.gaps for line in lines),
            data=interaction_data(lines, horizontal, vertical),
        )


@dataclass(frozen=True)
class Points:
    """A series as arrays; `present` marks the points that have a place on the chart."""

    name: str
    x: Floats
    y: Floats

    @property
    def present(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.isfinite(self.y)

    @property
    def gaps(self) -> int:
        return int((~self.present).sum())


@dataclass(frozen=True)
class LineDrawing:
    """What the template needs of one series: its stroke, and dots for points without neighbours."""

    name: str
    colour: int
    dashed: bool
    path: str
    dots: Sequence[tuple[float, float]]
    summary: str


@dataclass(frozen=True)
class ChartDrawing:
    chart: LineChart
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    lines: Sequence[LineDrawing]
    gaps: int
    data: dict[str, object]

    @property
    def empty(self) -> bool:
        return not self.y_ticks and not self.x_ticks

    @property
    def gutter(self) -> int:
        """Room for the longest label of the vertical axis, in characters."""
        return max((len(tick.label) for tick in self.y_ticks), default=1)

    @property
    def summary(self) -> str:
        """What somebody hears who cannot see the chart."""
        return "; ".join(f"{line.name}: {line.summary}" for line in self.lines) or "no data"


def drawable(series: Series, log: bool) -> Points:
    """Turn everything without a place on the chart into NaN; a point without x is dropped."""
    x, y = np.array(series.x, dtype=np.float64), np.array(series.y, dtype=np.float64)
    y[~(np.abs(y) < LARGEST)] = np.nan
    if log:
        y[~(y > 0)] = np.nan
    placed = np.abs(x) < LARGEST
    return Points(series.name, x[placed], y[placed])


def draw_line(position: int, line: Points, horizontal: Axis, vertical: Axis) -> LineDrawing:
    kept = thin(line.y)
    x, y = horizontal.place(line.x[kept]), 1 - vertical.place(line.y[kept])
    stretches = unbroken(y)
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


def interaction_data(lines: Sequence[Points], horizontal: Axis, vertical: Axis) -> dict[str, object]:
    """What the script needs to answer a pointer: the thinned points and the two axes."""
    return {
        "x": [horizontal.low, horizontal.high],
        "y": [vertical.low, vertical.high],
        "log": vertical.log,
        "series": [{"name": line.name, **thinned(line)} for line in lines],
    }


def thinned(line: Points) -> dict[str, list[float | None]]:
    """Points as JSON can say them: it has no NaN, and no reader needs the eighth digit."""
    kept = thin(line.y)
    y = [float(f"{value:.7g}") if np.isfinite(value) else None for value in line.y[kept]]
    return {"x": [shorten(value) for value in line.x[kept]], "y": y}


def shorten(value: float) -> float:
    return int(value) if float(value).is_integer() else float(f"{value:.10g}")
