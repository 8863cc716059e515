"""Server of a live page on loopback: `viaduct runs watch RUN` or `viaduct runs watch DIR`.

For one run it is the page of `train --watch`. For a folder it is the page over all its runs, rendered again when the
state, the steps or the metrics of a run have changed. The server is that of reporting/page_server.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from viaduct.reporting import Remark, render_page
from viaduct.reporting.page_server import IDLE_WAIT_S, WAIT_S, ServedPage
from viaduct.runs.facts import RunFacts
from viaduct.runs.listing import Listing, list_runs, open_run
from viaduct.runs.page import build_page, build_tiles
from viaduct.runs.state import is_locked
from viaduct.training.live import Ending, LivePage

POLL_S = 1.0  # seconds between two readings of the state of a run whose page is served


class RunsPage(ServedPage):
    """Serves the page over all runs below a folder."""

    def __init__(self, root: Path, port: int = 0) -> None:
        self.root = root
        self._rendered = ("", "")  # version and HTML of the last page; one tuple, so that threads replace both at once
        super().__init__(port, "--port")

    def read_runs(self) -> tuple[Listing, str]:
        """Return the current runs, and a version that changes with their states, steps and results."""
        with self._lock:
            listing = list_runs([self.root])
        facts = [(run.path, run.state, run.reason, run.steps, run.changed, run.top1) for run in listing.runs]
        return listing, hashlib.sha256(repr((facts, listing.problems)).encode()).hexdigest()[:16]

    def answer_page(self, query: dict[str, list[str]]) -> str:
        listing, version = self.read_runs()
        rendered_version, html = self._rendered
        if rendered_version != version:
            html = render_page(build_page(listing.runs, listing.problems, str(self.root), version))
            self._rendered = (version, html)
        return html

    def answer_data(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return version, tiles and runs; wait before, so that a page with `?since=VERSION` does not ask too often."""
        if "since" in query:
            self.ended.wait(IDLE_WAIT_S if "idle" in query else WAIT_S)
        listing, version = self.read_runs()
        tiles = [{"label": tile.label, "value": tile.value, "note": tile.note} for tile in build_tiles(listing.runs)]
        return {"version": version, "tiles": tiles, "ended": None, "runs": [describe_run(run) for run in listing.runs]}


def describe_run(run: RunFacts) -> dict[str, Any]:
    names = ("name", "state", "reason", "steps", "steps_total", "loss", "top1", "best_top1", "images_per_s")
    return {name: getattr(run, name) for name in names}


@contextlib.contextmanager
def open_page(folder: Path, port: int) -> Iterator[LivePage | RunsPage]:
    """Serve the page of a run, or of the runs below a folder, until the block ends."""
    page: LivePage | RunsPage
    if (folder / "recipe.json").exists():
        open_run(folder)  # raises BadRun if the run cannot be read
        page = LivePage(folder, port)
        threading.Thread(target=follow_run, args=(page,), daemon=True).start()
    else:
        page = RunsPage(folder, port)
    with contextlib.closing(page):
        yield page


def follow_run(page: LivePage) -> None:
    """Show the ending of a run on its page as soon as no process holds its lock."""
    while not page.closed:
        run = open_run(page.run)
        if run.state != "running" and is_locked(run.path) is False:
            page.show_ending(describe_ending(run))
            return
        time.sleep(POLL_S)


def describe_ending(run: RunFacts) -> Ending:
    reason = f": {run.reason}" if run.reason else ""
    sentence = f"{run.state.capitalize()} after step {run.steps:,}{reason}."
    if run.state == "unknown":
        sentence = f"No process trains this run, and how it ended is not known{reason}."
    report = Path(run.path) / "report.html"
    remarks = (Remark("Report", str(report)),) if report.is_file() else ()
    kind: Any = run.state if run.state in ("finished", "interrupted") else "stopped"
    return Ending(kind, sentence, remarks)
