"""Horizontal bars of counts by kind: each row has a label, a bar, the count and its percentage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.figures import format_count, format_share


@dataclass(frozen=True)
class BarChart:
    """One bar for each label, in the order given."""

    template: ClassVar[str] = "bar_chart.html"
    beside: ClassVar[str] = "shapes"  # laid out beside other parts with this value (page.py)

    title: str
    labels: Sequence[str]
    counts: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.counts):
            raise ValueError(f"{len(self.labels)} labels for {len(self.counts)} counts.")

    def drawing(self) -> list[Bar]:
        total, largest = sum(self.counts), max(self.counts, default=0)
        return [
            Bar(
                label,
                count / largest if largest else 0.0,
                format_count(count),
                format_share(count / total) if total else "",
            )
            for label, count in zip(self.labels, self.counts, strict=True)
        ]

    def to_json(self) -> dict[str, object]:
        """Return the chart as JSON data, from which virtual_table.js draws it in the details of a row."""
        return {"kind": "bars", "title": self.title, "labels": list(self.labels), "counts": list(self.counts)}


@dataclass(frozen=True)
class Bar:
    """One drawn bar; `length` is 1 for the largest count."""

    label: str
    length: float
    count: str
    share: str
