"""Drift page in a browser: both themes, two widths, five thousand rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from comparison.drift_sample import sample_drift, sample_explanation, sample_rows
from reporting.browser import needs_browser, open_page
from reporting.test_large_in_browser import HELPERS
from viaduct.comparison.report import write_report

pytestmark = [pytest.mark.browser, needs_browser]


@pytest.fixture(scope="module")
def drift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drift") / "report.html"
    rows = sample_rows(12, most=5000)
    write_report(path, sample_drift(rows, sample_explanation(rows)))
    return path


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False), (390, True)])
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
    found.times = [...table.querySelectorAll("th button")].map((button) => Math.min(...[1, 2, 3].map(() => {
      const start = performance.now();
      button.click();
      document.body.offsetHeight;
      return performance.now() - start;
    })));
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
    assert found["title"] == "npu against gpu: comparison of tensors"
    assert found["drawn"] == 7


OPENING = """
const headings = [...table.querySelectorAll("thead th")].filter((each) => each.getClientRects().length);
const box = scroller.getBoundingClientRect();
const ends = headings.map((each) => each.getBoundingClientRect());
return {
  results: column(0),
  first: rows()[0].innerText,
  names: headings.map((each) => each.textContent.replaceAll("\\u200b", "")),
  inside: ends.every((each) => each.left >= box.left - 1 && each.right <= box.right + 1),
  sideways: scroller.scrollWidth > scroller.clientWidth + 1,
  heights: [...new Set(rows().map((row) => Math.round(row.getBoundingClientRect().height)))],
  page: document.documentElement.scrollWidth,
};
"""


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (390, ["Result", "TensorIndex", "RelativeEuclideanDistance"]),
        (
            1200,
            [
                *("Result", "TensorIndex", "Step", "OpType"),
                *("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance", "CompareFailReason"),
            ],
        ),
    ],
)
def test_it_opens_with_the_bad_rows_and_without_a_cut_column(drift: Path, width: int, names: list[str]) -> None:
    found = open_page(drift, width=width, script=f"(async () => {{ {HELPERS} {OPENING} }})()").answer
    assert set(found["results"]) == {"✗bad"}
    assert "layer3.0.bn2:output:0" in found["first"], "the origin"
    assert found["names"] == names
    assert found["inside"]
    assert not found["sideways"]
    assert len(found["heights"]) == 1
    assert found["page"] == width


def test_a_button_shows_every_column_and_the_page_does_not_scroll_sideways(drift: Path) -> None:
    script = """
    const button = table.querySelector("button.width");
    const seen = () => [...table.querySelectorAll("thead th")].filter((each) => each.getClientRects().length).length;
    const found = [button.textContent, seen()];
    button.focus();
    button.click();
    found.push(seen(), scroller.scrollWidth > scroller.clientWidth, document.documentElement.scrollWidth);
    button.click();
    return [...found, seen()];
    """
    visit = open_page(drift, width=390, script=f"(async () => {{ {HELPERS} {script} }})()")
    assert visit.console == []
    assert visit.answer == ["All 25 columns", 3, 25, True, 390, 3]


def test_a_tap_on_a_phone_opens_a_row_and_filters_are_large_enough_for_a_finger(drift: Path) -> None:
    script = """
    chip("flag").click();
    rows()[0].click();
    const close = table.querySelector(".panel .head button");
    const panel = opened();
    const wide = table.querySelector(".panel").getBoundingClientRect().width;
    close.click();
    return [panel, wide, opened(), count()];
    """
    panel, wide, after, count = open_page(drift, width=390, script=f"(async () => {{ {HELPERS} {script} }})()").answer
    assert "head.flag:output:0" in panel
    assert "CosineSimilarity" in panel, "what has no column on a phone is in the details"
    assert wide <= 390
    assert after is None
    assert count == "1 of 5,005 rows"


def test_a_long_name_wraps_and_its_row_is_no_higher_than_the_others(tmp_path: Path) -> None:
    long = "model/encoder/block_11/attention/output_projection/kernel_quantized_to_int8_and_back" * 2
    rows = [replace(row, pair=replace(row.pair, left=replace(row.tensor, op=long))) for row in sample_rows(1)[-5:-4]]
    rows += sample_rows(1)
    path = tmp_path / "report.html"
    write_report(path, sample_drift(rows, sample_explanation(rows)))
    for width in (390, 1200):
        visit = open_page(path, width=width, script=f"(async () => {{ {HELPERS} {OPENING} }})()")
        assert visit.answer["page"] == width
        assert len(visit.answer["heights"]) == 1
        assert visit.answer["inside"]
