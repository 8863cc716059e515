"""The page of a search, from recorded trials."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runs.search.recorded_outcome import make_outcome
from viaduct.runs.search.output import measure_importance
from viaduct.runs.search.report import write_search_report


@pytest.mark.parametrize(("trials", "past"), [(1, 0), (2, 0), (20, 12)])
def test_the_page_has_history_importance_contours_and_all_trials(tmp_path: Path, trials: int, past: int) -> None:
    outcome = make_outcome(tmp_path, trials, past)
    write_search_report(tmp_path / "report.html", outcome, measure_importance(outcome.study))
    page = (tmp_path / "report.html").read_text()
    assert "<h3>History</h3>" in page
    assert page.count("trial-") >= trials
    assert ("part chart own contour" in page) == (trials > 2)
    assert ("Not given:" in page) == (trials <= 2)
    if past:
        assert "12 past runs are not drawn" in page
        assert re.search(r'<rect class="cell"', page)
