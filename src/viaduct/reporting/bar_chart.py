"""Counts by kind as horizontal bars: label, bar, count and share are in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.figures import write_count, write_share


@dataclass(frozen=True)
class BarChart:
    """One bar a label, in the order given."""

    template: ClassVar[str] = "bar_chart.html"
    beside: ClassVar[str] = "shapes"

    title: str
    labels: Sequence[str]
    counts: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.counts):
            raise ValueError(f"{len(self.labels)} labels for {len(self.counts)} counts.")

    def drawing(self) -> BarsDrawing:
        total, most = sum(self.counts), max(self.counts, default=0)
        bars = [
            Bar(label, count / most if most else 0.0, write_count(count), write_share(count / total) if total else "")
            for label, count in zip(self.labels, self.counts, strict=True)
        ]
        return BarsDrawing(self.title, bars)

    def record(self) -> dict[str, object]:
        """Return the chart for page scripts, which draw it in the details of a table's row."""
        return {"kind": "bars", "title": self.title, "labels": list(self.labels), "counts": list(self.counts)}


@dataclass(frozen=True)
class Bar:
    """One drawn bar."""

    label: str
    length: float
    count: str
    share: str


@dataclass(frozen=True)
class BarsDrawing:
    """Bars as the template needs them."""

    title: str
    bars: Sequence[Bar]
