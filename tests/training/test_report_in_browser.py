"""Page of a real run, opened in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reporting.browser import needs_browser, open_page

pytestmark = [pytest.mark.browser, needs_browser]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make demo`'s own page if it is there, else that of a shorter run."""
    demo = Path(__file__).parents[2] / "runs" / "demo" / "report.html"
    if demo.is_file():
        return demo
    run = tmp_path_factory.mktemp("runs") / "short"
    words = ["train", "shapes_taster", "--device", "cpu", "--steps", "40", "--log-every", "10", "--run", str(run)]
    subprocess.run([sys.executable, "-m", "viaduct", *words], check=True, capture_output=True, env=dict(os.environ))
    return run / "report.html"


LOOK = """
(() => {
  const names = [...document.querySelectorAll("dt")].map((name) => name.textContent.toLowerCase());
  return {
    page: document.documentElement.scrollWidth,
    paths: document.querySelectorAll("svg path").length,
    twice: names.filter((name, place) => names.indexOf(name) !== place),
    axes: [...document.querySelectorAll(".axis-name")].map((name) => name.textContent.trim()),
  };
})()
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_report_renders_and_asks_nobody_for_anything(report: Path, width: int, dark: bool) -> None:
    visit = open_page(report, width=width, dark=dark, script=LOOK)
    assert visit.requests == []
    assert visit.console == []
    assert visit.answer["page"] == width
    assert visit.answer["paths"] > 4  # curves are drawn
    assert visit.answer["twice"] == []
    assert "accuracy (%)" in visit.answer["axes"]
    for fragment in ("Curves", "Confusion", "Predictions", "Recipe", "Machine"):
        assert f">{fragment}<" in visit.dom
    shots = os.environ.get("VIADUCT_SCREENSHOTS")
    if shots:
        Path(shots, f"report-{width}-{'dark' if dark else 'light'}.png").write_bytes(visit.screenshot)
    assert len(visit.screenshot) > 20_000
