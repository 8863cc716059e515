"""Curves of many runs over a common axis; the script adds a box for each run that shows or hides its line.

Runs are chosen for the whole page: a box in one chart, and the filters of a `ParallelPlot`, act on every chart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.line_chart import LineChart


@dataclass(frozen=True)
class RunCurves(LineChart):
    """One line for each run; the name of a series is the name of the run. There is one scale only."""

    template: ClassVar[str] = "run_curves.html"

    log_y: bool = False
