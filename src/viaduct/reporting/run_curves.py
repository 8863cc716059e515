"""Curves of many runs over a common axis; the script adds a box for each run that shows or hides its line.

Runs are chosen together on one page: a box in one chart, and the filters of a `ParallelPlot`, act on every chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.line_chart import ChartDrawing, LineChart, Series


@dataclass(frozen=True)
class RunCurves:
    """One line for each run; the name of a series is the name of the run."""

    template: ClassVar[str] = "run_curves.html"

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_y: bool = False
    unit: str = ""

    def drawing(self) -> ChartDrawing:
        return LineChart(self.title, self.x_label, self.y_label, self.series, self.log_y, self.unit).drawing()
