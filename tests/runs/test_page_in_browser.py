"""The page over several runs as Chromium shows it: silent, offline, usable with the keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from reporting.browser import needs_browser, open_page
from runs.sample_runs import make_run
from viaduct.reporting import write_page
from viaduct.runs.listing import list_runs
from viaduct.runs.page import build_page

pytestmark = [pytest.mark.browser, needs_browser]

USE = """
(() => {
  const lines = (name) => [...document.querySelectorAll(`.run-curves path[data-run="${name}"]`)];
  const shown = (name) => lines(name).every((line) => line.style.display !== "none");
  const answers = { lines: lines("r0").length, before: shown("r0") };
  const box = document.querySelector('.run-curves li[data-run="r0"] input');
  box.click();
  answers.afterBox = shown("r0");
  answers.otherBoxes = [...document.querySelectorAll('li[data-run="r0"] input')].map((each) => each.checked);
  document.querySelector('.run-curves button[aria-label="All of the runs"]').click();
  answers.afterAll = shown("r0");
  const panel = document.querySelector(".run-filters");
  panel.open = true;
  const sets = [...panel.querySelectorAll("fieldset")];
  const rates = sets.find((set) => set.querySelector("legend").textContent === "optimizer.lr");
  const from = rates.querySelector("input");
  from.value = "0.15";
  from.dispatchEvent(new Event("input", { bubbles: true }));
  answers.status = document.querySelector(".parallel [role=status].aside").textContent;
  answers.filtered = ["r0", "r1", "r2"].map(shown);
  answers.out = [...document.querySelectorAll(".parallel path.out")].map((path) => path.dataset.run);
  const surface = document.querySelector(".parallel .surface");
  surface.focus();
  surface.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  answers.readout = document.querySelector(".parallel .readout").innerText;
  const chart = document.querySelector(".run-curves .surface");
  chart.focus();
  chart.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
  answers.curve = document.querySelector(".run-curves .readout").innerText;
  answers.width = document.documentElement.scrollWidth;
  return answers;
})()
"""


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_runs_are_chosen_filtered_and_read_by_keyboard(tmp_path: Path, width: int, dark: bool) -> None:
    for number in range(3):
        make_run(
            tmp_path / "runs" / f"r{number}", lr=0.1 * (number + 1), **{"schedule.is": ["Cosine", "Steps"][number % 2]}
        )
    listing = list_runs([tmp_path / "runs"])
    write_page(build_page(listing.runs, listing.problems, "runs"), tmp_path / "runs.html")
    visit = open_page(tmp_path / "runs.html", width=width, dark=dark, script=USE)
    found = visit.answer
    assert (visit.console, visit.requests) == ([], [])
    assert (found["lines"], found["before"], found["afterBox"], found["afterAll"]) == (2, True, False, True)
    assert found["otherBoxes"] == [False, False]
    assert found["status"] == "2 of 3 runs pass."
    assert (found["filtered"], found["out"]) == ([False, True, True], ["r0"])
    assert "optimizer.lr" in found["readout"]
    assert found["readout"].split()[0] in ("r1", "r2")
    assert "step 600" in found["curve"]
    assert "r0" not in found["curve"]
    assert found["width"] <= width


def test_the_page_is_readable_without_scripts(tmp_path: Path) -> None:
    for number in range(2):
        make_run(tmp_path / "runs" / f"r{number}", lr=0.1 * (number + 1))
    listing = list_runs([tmp_path / "runs"])
    write_page(build_page(listing.runs, listing.problems, "runs"), tmp_path / "runs.html")
    visit = open_page(tmp_path / "runs.html", with_scripts=False)
    assert visit.dom.count("data-run=") >= 8
    assert "finished" in visit.dom
