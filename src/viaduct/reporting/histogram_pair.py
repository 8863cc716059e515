"""Two histograms over one range, laid over each other: the first a filled shape, the second a line.

Counts are drawn by the logarithm of one more than themselves: after a ReLU half of all values are zero, and a straight
scale would show that one bar and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from viaduct.reporting.axis import Floats
from viaduct.reporting.figures import write_count


@dataclass(frozen=True)
class HistogramPair:
    """Bins of equal width from `low` to `high`; both sides have as many."""

    template: ClassVar[str] = "histogram_pair.html"
    beside: ClassVar[str] = "shapes"

    title: str
    low: float
    high: float
    left: Sequence[int]
    right: Sequence[int]
    left_name: str = "left"
    right_name: str = "right"

    def __post_init__(self) -> None:
        if len(self.left) != len(self.right):
            raise ValueError(f"histogram {self.title!r} has {len(self.left)} bins against {len(self.right)}.")

    def drawing(self) -> HistogramDrawing:
        most = max(*self.left, *self.right, 0, 0)
        left, right = (heights(side, most) for side in (self.left, self.right))
        empty = not most
        middle = (self.low + self.high) / 2
        return HistogramDrawing(
            self,
            area="" if empty else f"M0 1000V{outline(left)}V1000Z",
            line="" if empty else f"M0 {outline(right)}",
            ticks=[f"{value:.4g}" for value in (self.low, middle, self.high)],
            most=write_count(most),
        )

    def record(self) -> dict[str, object]:
        """The same for page scripts, which draw it in the details of a row."""
        return {
            "kind": "histograms",
            "title": self.title,
            "range": [float(f"{self.low:.6g}"), float(f"{self.high:.6g}")],
            "left": list(self.left),
            "right": list(self.right),
            "names": [self.left_name, self.right_name],
        }


@dataclass(frozen=True)
class HistogramDrawing:
    pair: HistogramPair
    area: str
    line: str
    ticks: Sequence[str]
    most: str


def heights(counts: Sequence[int], most: int) -> Floats:
    """Distance from the top, 0 to 1000."""
    scaled: Floats = 1000 - 1000 * np.log1p(np.asarray(counts, float)) / np.log1p(max(1, most))
    return scaled


def outline(tops: Floats) -> str:
    """Steps along the tops of the bins, from where the pen already stands at the left."""
    width = 1000 / len(tops)
    steps = [f"{top:.0f}H{(position + 1) * width:.1f}" for position, top in enumerate(tops)]
    return "V".join(steps)
