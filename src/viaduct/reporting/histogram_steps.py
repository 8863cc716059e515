"""Histograms of one quantity at several steps, drawn behind each other: how a parameter's values move in training.

The earliest is at the back, the newest in front. Each is scaled to the same height, so only positions of the values can
be compared between steps, not heights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.axis import is_one_value, widen
from viaduct.reporting.figures import format_count, format_scientific

OVERLAP = 2.2  # height of a shape, in units of the distance between the feet of two neighbours
MIN_WIDTH = 1 / 60  # smallest width of a shape, as a fraction of the drawing: that of values that are all equal


@dataclass(frozen=True)
class Histogram:
    """Bins of equal width from `low` to `high`, both finite."""

    step: int
    low: float
    high: float
    counts: Sequence[int]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low <= self.high and self.counts):
            raise ValueError(f"a histogram has bins between finite ends, not {self.low} to {self.high}.")


@dataclass(frozen=True)
class HistogramSteps:
    """`histograms` from the earliest step to the newest."""

    template: ClassVar[str] = "histogram_steps.html"
    beside: ClassVar[str] = "shapes"  # laid out beside other parts with this value (page.py)

    title: str
    histograms: Sequence[Histogram]

    def drawing(self) -> StepsDrawing:
        low = min((histogram.low for histogram in self.histograms), default=0.0)
        high = max((histogram.high for histogram in self.histograms), default=0.0)
        left, right = widen(low, high) if is_one_value(low, high) else (low, high)
        distance = 1000 / (len(self.histograms) - 1 + OVERLAP)
        shapes = [
            draw_shape(histogram, left, right, (index + OVERLAP) * distance, OVERLAP * distance)
            for index, histogram in enumerate(self.histograms)
        ]
        ticks = format_ends([left, left / 2 + right / 2, right])
        values = f"from {ticks[0]} to {ticks[2]}" if (left, right) == (low, high) else f"all {low:.4g}"
        return StepsDrawing(shapes, ticks, self.describe(values))

    def describe(self, values: str) -> str:
        if not self.histograms:
            return "no values"
        first, last = self.histograms[0], self.histograms[-1]
        steps = f"step {first.step:,}"
        if last is not first:
            steps += f" (back) to {last.step:,} (front)"
        return f"{steps}; {format_count(sum(last.counts))} values, {values}"


@dataclass(frozen=True)
class StepsDrawing:
    """SVG paths of the histograms, three labels below them, and a description."""

    shapes: Sequence[str]
    ticks: Sequence[str]
    summary: str


def format_ends(values: Sequence[float]) -> list[str]:
    """Write evenly spaced values with one digit more than is needed to distinguish them."""
    largest = max(map(abs, values))
    if not 1e-3 <= largest < 1e9:
        return [format_scientific(value) for value in values]
    decimals = max(0, 1 - math.floor(math.log10(values[1] - values[0])))
    return [f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in values]  # + 0.0: 0, not -0


def draw_shape(histogram: Histogram, left: float, right: float, base: float, height: float) -> str:
    """Return the outline of one histogram as an SVG path in a square of 1000.

    `left` and `right` are the values at the edges of the square, `base` the y of the histogram's foot.
    """
    begin, end = ((value - left) / (right - left) for value in (histogram.low, histogram.high))
    if end - begin < MIN_WIDTH:
        middle = min(max((begin + end) / 2, MIN_WIDTH / 2), 1 - MIN_WIDTH / 2)
        begin, end = middle - MIN_WIDTH / 2, middle + MIN_WIDTH / 2
    largest, width = max(1, *histogram.counts), (end - begin) / len(histogram.counts)
    corners = [
        f"V{base - height * count / largest:.0f}H{1000 * (begin + (index + 1) * width):.0f}"
        for index, count in enumerate(histogram.counts)
    ]
    return f"M0 {base:.0f}H{1000 * begin:.0f}{''.join(corners)}V{base:.0f}H1000"
