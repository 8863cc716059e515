"""The drift page as a person opens it: both themes, two widths, five thousand rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comparison.drift_sample import sample_explanation, sample_rows, sample_sides
from reporting.browser import needs_browser, open_page
from reporting.test_large_in_browser import HELPERS
from viaduct.comparison.report import write_report

pytestmark = [pytest.mark.browser, needs_browser]


@pytest.fixture(scope="module")
def drift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drift") / "report.html"
    rows = sample_rows(12, most=5000)
    write_report(path, rows, *sample_sides(rows), sample_explanation(rows))
    return path


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (800, False), (800, True)])
def test_it_is_silent_offline_and_fits_its_window(drift: Path, width: int, dark: bool) -> None:
    visit = open_page(drift, width=width, dark=dark, script="document.documentElement.scrollWidth")
    assert (visit.console, visit.requests, visit.answer) == ([], [], width)
    shots = os.environ.get("VIADUCT_SCREENSHOTS")
    if shots:
        Path(shots, f"drift-{width}-{'dark' if dark else 'light'}.png").write_bytes(visit.screenshot)
    assert len(visit.screenshot) > 20_000


def test_sorting_filtering_opening_and_following(drift: Path) -> None:
    script = """
    const found = {};
    found.times = [...table.querySelectorAll("th button")].map((button) => {
      const start = performance.now();
      button.click();
      document.body.offsetHeight;
      return performance.now() - start;
    });
    heading("Matched").click();
    heading("Matched").click();
    const [steps, roles] = table.querySelectorAll("select");
    chip("bad").click();
    roles.value = "output";
    roles.dispatchEvent(new Event("change"));
    steps.value = "1";
    steps.dispatchEvent(new Event("change"));
    type("layer4 add");
    found.names = column(1);
    rows()[0].click();
    found.panel = opened();
    table.querySelector(".panel a").click();
    await frame();
    found.origin = opened();
    found.title = document.title;
    found.drawn = document.querySelectorAll(".graph .node").length;
    return found;
    """
    visit = open_page(drift, width=1280, script=f"(async () => {{ {HELPERS} {script} }})()")
    assert visit.console == []
    assert visit.requests == []
    found = visit.answer
    assert max(found["times"]) < 300, "ms"
    assert found["names"] == [f"layer4.{block}.add:output:0" for block in range(3)]
    assert "follows from layer3.0.bn2" in found["panel"]
    assert "Largest errors" in found["panel"]
    assert "layer3.0.bn2:output:0" in found["origin"]
    assert found["title"] == "npu against gpu"
    assert found["drawn"] == 7
