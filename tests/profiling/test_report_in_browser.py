"""The page of a profile as Chromium shows it: silent, offline, zoomed by mouse and keyboard, sorted."""

from dataclasses import replace
from pathlib import Path

import pytest

from reporting.browser import needs_browser, open_page
from viaduct.profiling.report import write_report

from .sample_profiles import large_profile, minimal_profile, small_profile

pytestmark = [pytest.mark.browser, needs_browser]

HELPERS = """
const flame = document.querySelector(".flame");
const box = (name) => [...flame.querySelectorAll(".box")].find((each) => each.textContent === name);
const all = { bubbles: true, cancelable: true };
const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, ...all }));
const trail = () => flame.querySelector(".trail").innerText.replaceAll("\\n", " ");
const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
const settled = async () => {
  flame.querySelectorAll(".box").forEach((each) => (each.style.transition = "none"));
  await frame();
};
const width = (element) => element.getBoundingClientRect().width / flame.querySelector(".boxes").clientWidth;
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "large.html"
    write_report(large_profile(), path)
    return path


@pytest.fixture(scope="module")
def medium(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "medium.html"
    write_report(replace(large_profile(steps=400, ranks=4, operators=300), samples=()), path)
    return path


def run_in_page(path: Path, script: str, **options):
    """Return what the script answers; the page must have stayed silent and offline."""
    visit = open_page(path, script=f"(async () => {{ {HELPERS} {script} }})()", **options)
    assert (visit.console, visit.requests) == ([], [])
    return visit.answer


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_large_profile_is_silent_and_fits_its_window(large, width, dark):
    visit = open_page(large, width=width, dark=dark, script="[document.documentElement.scrollWidth, document.title]")
    assert (visit.console, visit.requests) == ([], [])
    assert visit.answer[0] == width
    assert visit.answer[1] != "taken"


@pytest.mark.parametrize("make", [minimal_profile, small_profile])
def test_a_small_profile_is_silent_and_fits_a_phone(tmp_path, make):
    write_report(make(), tmp_path / "report.html")
    visit = open_page(tmp_path / "report.html", width=390, script="document.documentElement.scrollWidth")
    assert (visit.console, visit.requests, visit.answer) == ([], [], 390)


def test_a_click_widens_a_box_and_another_takes_it_back(medium):
    before, zoomed, hidden, path, after = run_in_page(
        medium,
        """
        await settled();
        const before = width(box("backward"));
        box("backward").click();
        await settled();
        const state = [width(box("backward")), getComputedStyle(box("forward")).visibility, trail()];
        flame.querySelector(".trail button").click();
        await settled();
        return [before, ...state, width(box("backward"))];
        """,
    )
    assert before < 0.6
    assert zoomed == pytest.approx(1.0, abs=0.01)
    assert hidden == "hidden"
    assert path.startswith("one step › backward")
    assert after == pytest.approx(before, abs=0.01)


def test_the_keyboard_walks_and_zooms(medium):
    names, zoomed, path, after = run_in_page(
        medium,
        """
        const names = [];
        const go = (key) => { press(document.activeElement, key); names.push(document.activeElement.textContent); };
        flame.querySelector('.box[tabindex="0"]').focus();
        ["ArrowDown", "ArrowRight", "ArrowDown", "ArrowUp"].forEach(go);
        press(document.activeElement, "Enter");
        await settled();
        const zoomed = width(box("backward"));
        const path = trail();
        press(document.activeElement, "Escape");
        await settled();
        return [names, zoomed, path, width(box("one step"))];
        """,
    )
    assert names == ["forward", "backward", "network", "backward"]
    assert zoomed == pytest.approx(1.0, abs=0.01)
    assert "backward" in path
    assert after == pytest.approx(1.0, abs=0.01)


def test_hovering_a_box_says_its_time_and_share(medium):
    text = run_in_page(
        medium,
        """
        box("backward").dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
        return flame.querySelector(".readout:not([hidden])").innerText;
        """,
    )
    assert "backward" in text
    assert "ms, " in text


def test_a_rank_is_chosen_and_its_bars_are_read_by_keyboard(medium):
    shown, text = run_in_page(
        medium,
        """
        const chart = document.querySelector(".stacked");
        const select = chart.querySelector("select");
        select.value = "3";
        select.dispatchEvent(new Event("change"));
        const view = chart.querySelector(".view:not([hidden])");
        view.querySelector(".surface").focus();
        press(view.querySelector(".surface"), "End");
        return [view.querySelector(".group-name").textContent, view.querySelector(".readout:not([hidden])").innerText];
        """,
    )
    assert shown == "rank 3"
    assert "data tail" in text
    assert "longest of these" in text


def test_operators_sort_and_filter(medium):
    first, filtered = run_in_page(
        medium,
        """
        const table = document.querySelector("#operators");
        const rows = () => [...table.querySelectorAll("tbody tr[id]")];
        const button = [...table.querySelectorAll("th button")].find((each) => each.textContent === "time ms");
        button.click();
        await frame();
        const place = button.closest("th").cellIndex;
        const first = rows().slice(0, 3).map((row) => Number(row.cells[place].textContent));
        const search = table.querySelector("input");
        search.value = "native_batch_norm";
        search.dispatchEvent(new Event("input"));
        await frame();
        return [first, [...new Set(rows().map((row) => row.cells[0].textContent))]];
        """,
    )
    assert first == sorted(first)
    assert filtered == ["aten::native_batch_norm"]


def test_a_point_of_the_roofline_names_its_operator_and_leads_to_its_row(medium):
    text, address = run_in_page(
        medium,
        """
        const surface = document.querySelector(".scatter .surface");
        surface.focus();
        press(surface, "End");
        const text = document.querySelector(".scatter .readout:not([hidden])").innerText;
        press(surface, "Enter");
        return [text, location.hash];
        """,
    )
    assert "FLOP/byte" in text
    assert "FLOP/s" in text
    assert address.startswith("#operators-")


def test_without_scripts_the_page_can_be_read(medium):
    visit = open_page(medium, width=1280, with_scripts=False)
    assert "gradient aggregation and update tail" in visit.dom
    assert "The same as a table" in visit.dom
