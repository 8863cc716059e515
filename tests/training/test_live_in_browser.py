"""Live page of a run in a browser: it grows with the run, keeps the reader's position, and shows the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reporting.browser import DevTools, browser, capture, complaints, evaluate, list_requests, needs_browser, prepare
from training.made_up_run import append_evaluation, append_log, write_image, write_recipe, write_run
from viaduct.training.live import Ending, LivePage

pytestmark = [pytest.mark.browser, needs_browser]

LOOK = """
(() => ({
  page: document.documentElement.scrollWidth,
  titles: [...document.querySelectorAll("main h3")].map((title) => title.textContent),
  headings: [...document.querySelectorAll("main h2")].map((title) => title.textContent),
  loss: JSON.parse(document.querySelector(".chart script").textContent).series[0].x.length,
  step: document.querySelector(".tiles .value").textContent,
  callouts: [...document.querySelectorAll(".callout .headline")].map((headline) => headline.textContent.trim()),
  images: [...document.querySelectorAll(".sheet img")].map((image) => image.naturalWidth),
  scroll: Math.round(scrollY),
  focus: document.activeElement.getAttribute("aria-label") ?? "",
  scale: document.querySelector(".chart .view:not([hidden]) .scale-name") !== null,
  readout: document.querySelector(".chart .view:not([hidden]) .readout .where")?.textContent ?? "",
}))()
"""


@contextmanager
def open_tab(url: str, width: int, dark: bool = False) -> Iterator[DevTools]:
    with browser() as tools:
        target = tools.call("Target.createTarget", url="about:blank")["targetId"]
        tools.session = tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        prepare(tools, width, dark, with_scripts=True)
        tools.call("Page.navigate", url=url)
        tools.wait_for_event("Page.loadEventFired")
        yield tools


def wait_until(tools: DevTools, condition: str) -> Any:
    """Look again and again until a JavaScript condition over what LOOK finds (`now`) holds."""
    end = time.monotonic() + 60
    while not evaluate(tools, f"((now) => {condition})({LOOK.strip()})"):
        assert time.monotonic() < end, f"{condition} never came: {evaluate(tools, LOOK)}"
        time.sleep(0.1)
    return evaluate(tools, LOOK)


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1200, True)])
def test_the_page_grows_with_the_run_and_says_how_it_ended(tmp_path: Path, width: int, dark: bool) -> None:
    run = write_run(tmp_path / "run", steps=200)
    page = LivePage(run)
    try:
        with open_tab(page.url, width, dark) as tools:
            before = evaluate(tools, LOOK)
            assert before["page"] == width
            assert before["loss"] == 20
            assert before["images"] == [256]
            assert before["headings"] == ["Curves", "Evaluations", "Histograms", "Input images"]
            evaluate(tools, "scrollTo({ top: 400, behavior: 'instant' })")
            append_log(run, 210)
            append_evaluation(run, 210, kappa=0.3)
            after = wait_until(tools, "now.loss === 21")
            assert after["step"] == "210"
            assert after["scroll"] == 400
            assert after["page"] == width
            write_image(run, 210)
            page.follow(lambda: (217, 1000))
            wait_until(tools, "now.step === '217'")
            write_image(run, 217)
            page.show_ending(Ending("interrupted", "Interrupted by SIGINT after step 217 of 1,000."))
            page.close()  # as when the process ends: the page has got all that it shows
            ended = wait_until(tools, "now.callouts.length === 1")
            assert ended["callouts"][0].endswith("Interrupted by SIGINT after step 217 of 1,000.")
            assert (ended["page"], ended["images"]) == (width, [256])
            asked = len(list_requests(tools))
            time.sleep(2.5)
            evaluate(tools, LOOK)
            assert len(list_requests(tools)) == asked  # nothing is asked of a run that has ended
            assert {address.split("/")[2] for address in list_requests(tools) if address.startswith("http")} == {
                f"127.0.0.1:{page.port}"
            }
            assert complaints(tools) == []
            if shots := os.environ.get("VIADUCT_SCREENSHOTS"):
                Path(shots, f"live-{width}.png").write_bytes(capture(tools, width))
    finally:
        page.close()


def test_what_is_being_read_stays_while_the_page_renews_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_recipe(run)
    for step in range(10, 110, 10):
        append_log(run, step, loss=1000 / step**1.5)
    page = LivePage(run)
    try:
        with open_tab(page.url, 1200) as tools:
            evaluate(tools, "document.querySelector('.chart .scale').click()")
            before = evaluate(tools, LOOK)
            surface = "document.querySelector('.chart .view:not([hidden]) .surface')"
            evaluate(tools, f"{surface}.focus()")
            key = "new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true })"
            evaluate(tools, f"{surface}.dispatchEvent({key}), {surface}.dispatchEvent({key})")
            reading = evaluate(tools, LOOK)
            assert reading["readout"] == "step 20"
            append_log(run, 110, loss=0.9)
            after = wait_until(tools, "now.loss === 11")
            assert (after["readout"], after["scale"]) == ("step 20", before["scale"])
            assert after["focus"].startswith("Loss.")
            append_evaluation(run, 120)  # a section that was not there
            grown = wait_until(tools, "now.headings.includes('Evaluations')")
            assert (grown["readout"], grown["scale"]) == ("step 20", before["scale"])
            assert grown["focus"].startswith("Loss.")
            assert complaints(tools) == []
    finally:
        page.close()


def test_a_page_whose_server_is_gone_says_so_and_keeps_what_it_shows(tmp_path: Path) -> None:
    page = LivePage(write_run(tmp_path / "run", steps=50))
    try:
        with open_tab(page.url, 390) as tools:
            page.close()
            lost = wait_until(tools, "now.callouts.length === 1")
            assert "The run has ended or its server is gone" in lost["callouts"][0]
            assert lost["loss"] == 5
            assert lost["page"] == 390
            back = LivePage(tmp_path / "run", page.port)  # ranks were started again
            try:
                wait_until(tools, "now.callouts.length === 0")
            finally:
                back.close()
    finally:
        page.close()


def test_a_page_opened_before_the_run_has_begun_takes_its_name(tmp_path: Path) -> None:
    page = LivePage(tmp_path / "run")
    try:
        with open_tab(page.url, 390) as tools:
            assert evaluate(tools, "document.querySelector('h1').textContent") == "run"
            write_run(tmp_path / "run", steps=100)
            name = "document.querySelector('h1').textContent"
            end = time.monotonic() + 60
            while evaluate(tools, name) != "made_up":
                assert time.monotonic() < end
                time.sleep(0.1)
            assert evaluate(tools, "document.title") == "made_up: live"
            assert complaints(tools) == []
    finally:
        page.close()
