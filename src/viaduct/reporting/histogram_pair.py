"""Two histograms over one range, drawn over each other: the first as a filled shape, the second as a line.

Heights are log(1 + count): after a ReLU half of all values are zero, and a linear scale would show only their bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class HistogramPair:
    """Counts of bins of equal width from `low` to `high`, the same number of bins for both histograms."""

    template: ClassVar[str] = "histogram_pair.html"
    beside: ClassVar[str] = "shapes"  # laid out beside other parts with this value (page.py)

    title: str
    low: float
    high: float
    first: Sequence[int]
    second: Sequence[int]
    first_name: str = "left"  # the sides of a comparison
    second_name: str = "right"

    def __post_init__(self) -> None:
        if len(self.first) != len(self.second):
            raise ValueError(f"histogram {self.title!r} has {len(self.first)} bins against {len(self.second)}.")

    @property
    def largest(self) -> int:
        """Largest count."""
        return max([*self.first, *self.second], default=0)

    @property
    def area(self) -> str:
        """SVG path of the first histogram; empty without values."""
        return f"M0 1000V{draw_outline(self.first, self.largest)}V1000Z" if self.largest else ""

    @property
    def line(self) -> str:
        """SVG path of the second histogram; empty without values."""
        return f"M0 {draw_outline(self.second, self.largest)}" if self.largest else ""

    @property
    def ticks(self) -> list[str]:
        return [f"{value:.4g}" for value in (self.low, (self.low + self.high) / 2, self.high)]

    def to_json(self) -> dict[str, object]:
        """Return the histograms as JSON data, from which virtual_table.js draws them in the details of a row."""
        return {
            "kind": "histograms",
            "title": self.title,
            "range": [float(f"{self.low:.6g}"), float(f"{self.high:.6g}")],
            "first": list(self.first),
            "second": list(self.second),
            "names": [self.first_name, self.second_name],
        }


def draw_outline(counts: Sequence[int], largest: int) -> str:
    """Return the part of an SVG path along the tops of the bins, in a square of 1000; `M0 ` or `V` goes before it."""
    tops = 1000 - 1000 * np.log1p(np.asarray(counts, float)) / np.log1p(largest)
    width = 1000 / len(counts)
    return "V".join(f"{top:.0f}H{(position + 1) * width:.1f}" for position, top in enumerate(tops))
