"""Live page over several runs in a browser: it follows the runs and keeps the user's choices."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from reporting.browser import browser, complaints, evaluate, needs_browser, prepare
from runs.sample_runs import make_run
from viaduct.runs.watching import RunsPage

pytestmark = [pytest.mark.browser, needs_browser]

FILTER = """
(() => {
  document.querySelector('.run-curves li[data-run="a"] input').click();
  const input = document.querySelector(".run-filters input[type=text]");
  input.value = "a";
  input.dispatchEvent(new Event("input", { bubbles: true }));
})()
"""
LOOK = """
(() => ({
  runs: document.querySelector(".tiles .value").textContent,
  status: document.querySelector(".parallel p[role=status]")?.textContent,
  filter: document.querySelector(".run-filters input[type=text]")?.value,
  boxes: Object.fromEntries([...document.querySelectorAll(".run-curves:first-child li")].map(
    (item) => [item.dataset.run, item.querySelector("input").checked])),
}))()
"""


def test_filters_and_boxes_are_kept_when_a_run_is_added(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        make_run(tmp_path / name, lr=rate)
    page = RunsPage(tmp_path)
    try:
        with browser() as tools:
            target = tools.call("Target.createTarget", url="about:blank")["targetId"]
            tools.session = tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            prepare(tools, 1200, dark=False, with_scripts=True)
            tools.call("Page.navigate", url=page.url)
            tools.wait_for_event("Page.loadEventFired")
            evaluate(tools, FILTER)
            assert evaluate(tools, LOOK)["status"] == "1 of 2 runs pass."
            make_run(tmp_path / "a2", lr=0.3)
            found = wait_for_runs(tools, "3")
            assert (found["status"], found["filter"]) == ("2 of 3 runs pass.", "a")
            assert found["boxes"] == {"a": False, "b": False, "a2": True}
            assert complaints(tools) == []
    finally:
        page.close()


def wait_for_runs(tools: Any, count: str) -> dict[str, Any]:
    """Look until the page counts so many runs, in its tiles and in its axes."""
    end = time.monotonic() + 60
    while True:
        found: dict[str, Any] = evaluate(tools, LOOK)
        if found["runs"] == count and f"of {count} runs" in (found["status"] or ""):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.2)
