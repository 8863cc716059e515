"""Line chart as SVG; page.js adds the read-out under the pointer and the button that switches scales.

Coordinates are relative to the plot (0 to 100 %, and 0 to 1000 inside paths): a drawing fits any width, and letters and
strokes keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Axis, Floats, Tick, fit_x_axis, fit_y_axis
from viaduct.reporting.figures import round_digits
from viaduct.reporting.thinning import choose_points

COLOURS = 6  # number of `--line-…` colours in page.css; the seventh series has the first colour again, dashed
# Larger values count as infinite, because their differences overflow; those below its inverse count as 0.
MAX_VALUE = 1e300
# Ratio of the largest to the smallest positive value above which a chart opens with a log scale.
LOG_SCALE_RATIO = 100.0
OTHER_SCALE_RATIO = 10.0  # the same ratio above which a chart has both scales and a button to switch


@dataclass(frozen=True)
class Series:
    """One line; None, NaN and infinite values are gaps in it. With `dots`, its points are not joined."""

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

    `log_y` True: a log scale; values that are not above zero are left out, and a note counts them. False: a linear
    scale. None: `choose_scales` decides, and may give a button for a second scale.
    `unit` follows the name of the axis and the values of the read-out.
    """

    template: ClassVar[str] = "line_chart.html"

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool | None = None
    unit: str = ""
    includes: Sequence[float] = ()  # values that the vertical axis always covers, such as 0 and 100 of a percentage

    def drawing(self) -> ChartDrawing:
        lines = [read_points(series) for series in self.series]
        x = concatenate([line.x[line.present] for line in lines])
        y = concatenate([line.y[line.present] for line in lines])
        y = np.append(y, self.includes) if y.size else y
        x_axis = fit_x_axis(x)
        integers = bool((x == np.round(x)).all())
        scales = choose_scales(y, self.log_y)
        return ChartDrawing(
            x_ticks=x_axis.ticks(7, integers) if x.size else [],
            views=[draw_view(lines, x_axis, y, log) for log in scales],
            data=make_readout_data(lines, x_axis, [fit_y_axis(y, log) for log in scales], self.unit),
        )


@dataclass(frozen=True)
class RunCurves(LineChart):
    """One line for each run, named like the run, on one scale; run_curves.js adds a checkbox for each run.

    A checkbox in one chart, and a filter of a `ParallelPlot`, hide a run in every chart of the page.
    """

    template: ClassVar[str] = "run_curves.html"

    log_y: bool = False


@dataclass(frozen=True)
class Points:
    """A series as arrays; a y value that cannot be drawn is NaN."""

    name: str
    x: Floats
    y: Floats
    dots: bool = False

    @property
    def present(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.isfinite(self.y)


@dataclass(frozen=True)
class LineDrawing:
    """One series as the template needs it: an SVG path, and dots for isolated points.

    `colour` is the number of a `--line-…` colour; `summary` is for screen readers.
    """

    name: str
    colour: int
    dashed: bool
    path: str
    dots: Sequence[tuple[float, float]]
    summary: str


@dataclass(frozen=True)
class ChartView:
    """The chart on a linear or log scale; `note` counts the values that it cannot show."""

    log: bool
    y_ticks: Sequence[Tick]
    lines: Sequence[LineDrawing]
    note: str

    @property
    def summary(self) -> str:
        """Return the text for screen readers."""
        lines = "; ".join(f"{line.name}: {line.summary}" for line in self.lines) or "no data"
        return f"Log scale. {lines}" if self.log else lines


@dataclass(frozen=True)
class ChartDrawing:
    """The chart on each of its scales; the first view is shown, the script has a button for the second."""

    x_ticks: Sequence[Tick]
    views: Sequence[ChartView]
    data: dict[str, object]

    @property
    def lines(self) -> Sequence[LineDrawing]:
        return self.views[0].lines


def concatenate(arrays: Sequence[Floats]) -> Floats:
    """Concatenate any number of arrays, none included."""
    return np.concatenate(arrays) if arrays else np.empty(0)


def read_points(series: Series) -> Points:
    """Return the points that have an x; y values that cannot be drawn become NaN."""
    x, y = np.array(series.x, dtype=np.float64), np.array(series.y, dtype=np.float64)
    y[~(np.abs(y) < MAX_VALUE)] = np.nan
    y[np.abs(y) < 1 / MAX_VALUE] = 0
    has_x = np.abs(x) < MAX_VALUE
    return Points(series.name, x[has_x], y[has_x], series.dots)


def choose_scales(y: Floats, log_y: bool | None) -> list[bool]:
    """Return one scale or two, the one shown first in front; True means a log scale, False a linear one."""
    if log_y is not None:
        return [log_y]
    positive = y[y > 0]
    if not positive.size or (y < 0).any() or positive.max() <= OTHER_SCALE_RATIO * positive.min():
        return [False]
    opens_with_log = bool(positive.max() > LOG_SCALE_RATIO * positive.min())
    return [opens_with_log, not opens_with_log]


def draw_view(lines: Sequence[Points], x_axis: Axis, y: Floats, log: bool) -> ChartView:
    """Draw all lines on one scale; `y` are the values that the vertical axis covers."""
    y_axis = fit_y_axis(y, log)
    shown_lines = [replace(line, y=np.where(line.y > 0, line.y, np.nan)) for line in lines] if log else lines
    return ChartView(
        log=log,
        y_ticks=y_axis.ticks(7) if any(line.present.any() for line in shown_lines) else [],
        lines=[draw_line(index, line, x_axis, y_axis) for index, line in enumerate(shown_lines)],
        note=describe_gaps(concatenate([line.y for line in lines]), log),
    )


def describe_gaps(y: Floats, log: bool) -> str:
    """Return a sentence on the values that are missing from the lines; empty if there are none."""
    not_finite = int((~np.isfinite(y)).sum())
    parts = [f"{count_values(not_finite)} NaN or infinite"] if not_finite else []
    if log:
        zeros, negative = int((y == 0).sum()), int((y < 0).sum())
        parts += [f"{count_values(zeros)} zero"] if zeros else []
        parts += [f"{count_values(negative)} negative"] if negative else []
    scale = ", which a log scale cannot show" if len(parts) > bool(not_finite) else ""
    return f"Gaps in the lines: {', '.join(parts)}{scale}." if parts else ""


def count_values(count: int) -> str:
    return f"{count:,} {'value is' if count == 1 else 'values are'}"


def draw_line(index: int, line: Points, x_axis: Axis, y_axis: Axis) -> LineDrawing:
    """Draw one series; `index` gives its colour."""
    indices = choose_points(line.y)
    x, y = x_axis.compute_positions(line.x[indices]), 1 - y_axis.compute_positions(line.y[indices])
    stretches = split_at_gaps(y)
    if line.dots:
        stretches = [np.array([point]) for stretch in stretches for point in stretch]
    return LineDrawing(
        name=line.name,
        colour=index % COLOURS,
        dashed=index // COLOURS % 2 == 1,
        path="".join(draw_path(x[stretch], y[stretch]) for stretch in stretches if len(stretch) > 1),
        dots=[(float(x[stretch[0]]), float(y[stretch[0]])) for stretch in stretches if len(stretch) == 1],
        summary=describe_line(line),
    )


def split_at_gaps(y: Floats) -> list[Floats]:
    """Return the indices of each stretch of finite values."""
    finite = np.isfinite(y)
    edges = np.flatnonzero(np.diff(finite)) + 1
    return [stretch for stretch in np.split(np.arange(len(y)), edges) if len(stretch) and finite[stretch[0]]]


def draw_path(x: Floats, y: Floats) -> str:
    """Return a line through points (fractions of the plot) as an SVG path in a square of 1000."""
    return "M" + "L".join(f"{1000 * right:.1f} {1000 * down:.1f}" for right, down in zip(x, y, strict=True))


def describe_line(line: Points) -> str:
    values = line.y[line.present]
    if not values.size:
        return "no data"
    return f"{values.size} points from {values.min():.4g} to {values.max():.4g}, last {values[-1]:.4g}"


def make_readout_data(lines: Sequence[Points], x_axis: Axis, y_axes: Sequence[Axis], unit: str) -> dict[str, object]:
    """Return the thinned points and the axes, from which the script makes the read-out under the pointer."""
    return {
        "x": [x_axis.low, x_axis.high],
        "views": [{"y": [axis.low, axis.high], "log": axis.log} for axis in y_axes],
        "unit": unit,
        "series": [{"name": line.name, **thin_points(line)} for line in lines],
    }


def thin_points(line: Points) -> dict[str, list[float | None]]:
    """Return the thinned points for JSON: ten digits of x, seven of y."""
    indices = choose_points(line.y)
    x: list[float | None] = [
        int(value) if value.is_integer() else float(f"{value:.10g}") for value in line.x[indices].tolist()
    ]
    return {"x": x, "y": [round_digits(value, 7) for value in line.y[indices].tolist()]}
