"""The page as Chromium sees it: silent, offline, sortable, and readable in both themes."""

import json
from pathlib import Path

import pytest

from viaduct.reporting import LineChart, Page, Section, Series, Table, write_page

from .browser import needs_browser, open_page
from .sample_page import sample_page

pytestmark = [pytest.mark.browser, needs_browser]

COLUMN = """
(clicks) => {
  for (let n = 0; n < clicks; n++) document.querySelector("th button").click();
  return [...document.querySelectorAll("tbody td:first-child")].map((cell) => cell.textContent);
}
"""
HOVER = """
(() => {
  const surface = document.querySelector(".surface");
  const box = surface.getBoundingClientRect();
  surface.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right, clientY: box.top + 5 }));
  return document.querySelector(".readout:not([hidden])").innerText;
})()
"""
FOCUS_AND_PRESS = """
(() => {
  const surface = document.querySelector(".surface");
  surface.focus();
  surface.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
  return document.querySelector(".readout:not([hidden])").innerText;
})()
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "sample.html"
    write_page(sample_page(), path)
    return path


@pytest.fixture
def column_after(tmp_path):
    """Return a function that gives the first column after a number of clicks on its heading."""

    def click(clicks: int, *values: object) -> list[str]:
        path = tmp_path / "table.html"
        write_page(Page("x", sections=[Section("s", "", [Table(["c"], [[value] for value in values])])]), path)
        return open_page(path, script=f"({COLUMN})({clicks})").answer

    return click


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_a_page_is_silent_offline_and_fits_its_window(sample, tmp_path, width, dark):
    visit = open_page(sample, width=width, dark=dark, script="document.documentElement.scrollWidth")
    (tmp_path / "screenshot.png").write_bytes(visit.screenshot)
    assert visit.console == []
    assert visit.requests == []
    assert visit.answer == width


def test_an_outside_address_would_have_been_noticed(tmp_path):
    path = tmp_path / "careless.html"
    path.write_text('<!doctype html><img src="https://example.invalid/x.png"><script>console.log("hello")</script>')
    visit = open_page(path)
    assert visit.requests == ["https://example.invalid/x.png"]
    assert "hello" in visit.console


def test_light_and_dark_differ_and_the_toggle_swaps_them(sample):
    ground = "getComputedStyle(document.body).backgroundColor"
    toggled = f"document.querySelector('button.theme').click(); {ground}"
    assert open_page(sample, script=ground).answer == open_page(sample, dark=True, script=toggled).answer
    assert open_page(sample, dark=True, script=ground).answer == open_page(sample, script=toggled).answer


def test_numbers_sort_as_numbers_with_the_missing_last_both_ways(column_after):
    values = [10, None, 9, 100]
    assert column_after(0, *values) == ["10", "–", "9", "100"]
    assert column_after(1, *values) == ["9", "10", "100", "–"]
    assert column_after(2, *values) == ["100", "10", "9", "–"]
    assert column_after(3, *values) == ["10", "–", "9", "100"]


def test_texts_sort_by_the_numbers_in_them(column_after):
    assert column_after(1, "layer10", "layer9", "Layer1") == ["Layer1", "layer9", "layer10"]


def test_sorting_is_announced_and_reachable_by_keyboard(sample):
    script = """
    const button = document.querySelector("th button");
    button.focus();
    button.click();
    [document.activeElement === button, button.closest("th").getAttribute("aria-sort")]
    """
    assert open_page(sample, script=script).answer == [True, "ascending"]


@pytest.mark.parametrize("script", [HOVER, FOCUS_AND_PRESS], ids=["pointer", "keyboard"])
def test_a_chart_reads_out_every_series_under_the_crosshair(sample, script):
    visit = open_page(sample, script=script)
    assert visit.console == []
    assert "step 11,730" in visit.answer
    assert "training" in visit.answer
    assert "validation" in visit.answer


def test_a_chart_over_decades_opens_on_a_log_scale_and_its_button_changes_it(tmp_path):
    path = tmp_path / "decades.html"
    steps = list(range(1, 50))
    series = Series("training", steps, [0, *(10.0 ** (-step / 8) for step in steps[1:])])
    write_page(Page("x", sections=[Section("s", "", [LineChart("Loss", "step", "loss", [series])])]), path)
    script = """
    const views = () => [...document.querySelectorAll(".view")].filter((view) => view.offsetParent);
    const seen = () => views().map((view) => view.querySelector(".axis-name").textContent.trim());
    const surface = document.querySelector(".view:not([hidden]) .surface");
    surface.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
    const readout = document.querySelector(".readout:not([hidden])").innerText;
    const button = document.querySelector("button.scale");
    button.focus();
    const log = seen();
    button.click();
    const other = seen();
    button.click();
    const circles = surface.querySelectorAll("circle").length;
    ({ log, other, again: seen(), label: button.textContent, readout, circles })
    """
    visit = open_page(path, width=390, script=script)
    assert visit.console == []
    assert visit.answer["log"] == visit.answer["again"] == ["loss log scale"]
    assert visit.answer["other"] == ["loss"]
    assert visit.answer["label"] == "Linear scale"
    assert "training\n0" in visit.answer["readout"], "a zero has no place on the scale, and is still read out"
    assert visit.answer["circles"] == 0


@pytest.mark.parametrize("width", [390, 1200])
def test_letters_of_charts_are_legible_and_stay_on_the_page(sample, width):
    script = """
    [...document.querySelectorAll("svg text")].filter((text) => text.getClientRects().length).map((text) => {
      const box = text.getBoundingClientRect();
      return [parseFloat(getComputedStyle(text).fontSize), box.left, box.right];
    })
    """
    texts = open_page(sample, width=width, script=script).answer
    assert len(texts) > 20
    assert min(size for size, _, _ in texts) >= 11
    assert min(left for _, left, _ in texts) >= 0
    assert max(right for _, _, right in texts) <= width


def test_a_large_heatmap_names_the_cell_under_the_pointer(sample):
    script = """
    const image = document.querySelector(".matrix img");
    const box = image.getBoundingClientRect();
    const spot = { clientX: box.left + box.width * 0.425, clientY: box.top + box.height * 0.175 };
    image.dispatchEvent(new PointerEvent("pointermove", spot));
    document.querySelector(".matrix .readout").textContent
    """
    assert open_page(sample, script=script).answer.startswith("class 17 taken for class 42: 23 of ")


def test_charts_and_tables_are_there_without_scripts(sample):
    visit = open_page(sample, with_scripts=False)
    assert visit.dom.count('class="strokes"') == 4, "three charts, one of them on a second scale"
    assert "<button" not in visit.dom
    assert "0.4600" in visit.dom


def test_a_hostile_name_runs_nothing(tmp_path):
    path = tmp_path / "hostile.html"
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    write_page(Page("safe", sections=[Section(hostile, hostile, [Table([hostile], [[hostile], [1]])])]), path)
    visit = open_page(path, script="document.title")
    assert visit.answer == "safe", json.dumps(visit.console)
    assert visit.console == []
