"""Curves of many runs over a common axis; the script adds a checkbox for each run.

A checkbox in one chart, and a filter of a `ParallelPlot`, hide a run in every chart of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.line_chart import LineChart


@dataclass(frozen=True)
class RunCurves(LineChart):
    """One line for each run, named like the run, on one scale."""

    template: ClassVar[str] = "run_curves.html"

    log_y: bool = False
