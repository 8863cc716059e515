"""Page of a search, opened in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from reporting.browser import needs_browser, open_page
from runs.search.recorded_outcome import make_outcome
from viaduct.runs.search.output import measure_importance
from viaduct.runs.search.report import write_search_report

pytestmark = [pytest.mark.browser, needs_browser]

LOOK = """
(() => {
  const dots = [...document.querySelectorAll(".contour circle")].map((dot) => dot.getBoundingClientRect());
  const plot = document.querySelector(".contour .surface").getBoundingClientRect();
  return {
    page: document.documentElement.scrollWidth,
    cells: document.querySelectorAll(".contour .cell").length,
    dots: dots.length,
    outside: dots.filter((dot) => dot.left < plot.left - 8 || dot.right > plot.right + 8).length,
    best: document.querySelectorAll(".contour circle.best").length,
  };
})()
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_of_a_search_renders_without_requests(tmp_path: Path, width: int, dark: bool) -> None:
    outcome = make_outcome(tmp_path, 20, 12)
    write_search_report(tmp_path / "report.html", outcome, measure_importance(outcome.study))
    visit = open_page(tmp_path / "report.html", width=width, dark=dark, script=LOOK)
    assert visit.requests == []
    assert visit.console == []
    assert visit.answer["page"] == width
    assert visit.answer["cells"] > 20
    assert visit.answer["dots"] == sum(result.is_measured for result in outcome.results)
    assert visit.answer["outside"] == 0
    assert visit.answer["best"] == 1
