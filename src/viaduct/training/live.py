"""A web page that shows a run while it goes on: `viaduct train … --watch`.

    page = LivePage(Path("runs/try1"), port=0)      # listens on 127.0.0.1 only; page.url is the address to open
    page.follow(lambda: (step, steps))              # a function for the current step, in the process that trains
    page.show_ending(Ending("finished", "Finished after step 600."))
    page.close()

    /              the page, made by `reporting`; its script requests /data.json?since= and loads the page on a change
    /data.json     state and curves; with `?since=…` only the state, answered after 2 to 15 seconds or when the run ends
    /images/…      the sheets of input images in RUN/images

Files are read when a request comes; of files that grow, only the added lines are read. Needs no torch.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np

from viaduct.data.png import SIGNATURE
from viaduct.data.synthetic import SYNTHETIC
from viaduct.plain_files import open_plain_file
from viaduct.reporting import (
    Callout,
    HistogramSteps,
    ImageSheet,
    LineChart,
    Link,
    Page,
    Part,
    Remark,
    Section,
    Series,
    Tile,
    Tone,
    render_page,
)
from viaduct.reporting.page_server import IDLE_WAIT_S, WAIT_S, ServedPage
from viaduct.reporting.thinning import choose_points
from viaduct.training.curves import NOISE_WARNING, build_curves, build_evaluation_table, format_percent
from viaduct.training.run_reader import (
    IMAGE_NAME,
    MAX_AXIS_VALUE,
    RunContents,
    RunReader,
    parse_image_step,
    pick_evenly,
)

MAX_POINTS = 400  # points of a curve that are drawn
MAX_LAYERS = 12  # parameters whose histograms are drawn, each with its gradient
MAX_PATTERN_CHARACTERS = 200  # of `?layers=` in an address
EARLIER_IMAGES = 10  # links to earlier sheets of input images
# Share of a core that rendering for one open page may take, because it slows down training.
MAX_RENDER_SHARE = 0.01
FAREWELL_S = 3.0  # longest wait for open pages to load the version that shows how the run ended
QUIET_S = 0.4  # if no request has come for so long, open pages have loaded their images, too
PNG_HEAD_BYTES = 24  # signature, length and type of the first chunk, width, height
MAX_IMAGE_BYTES = 64 << 20
TONES: dict[str, Tone] = {"finished": "good", "interrupted": "warn", "stopped": "bad"}


@dataclass(frozen=True)
class Ending:
    """A sentence on how a run has ended, and remarks on what can be done now."""

    kind: Literal["finished", "interrupted", "stopped"]  # interrupted: by a signal; stopped: by an error
    sentence: str
    remarks: tuple[Remark, ...] = ()


class LivePage(ServedPage):
    """Serves the page of one run."""

    def __init__(self, run: Path, port: int = 0) -> None:
        self.run = run
        self.ending: Ending | None = None
        self._position: Callable[[], tuple[int, int]] | None = None
        self._reader = RunReader(run)
        self._rendered: dict[tuple[str, str], str] = {}  # only the newest page: (version of the run, `layers`) -> HTML
        self._render_seconds = 0.0  # processor time that rendering the newest page took
        self._visitors = Visitors()
        super().__init__(port, "--watch-port")

    def follow(self, position: Callable[[], tuple[int, int]]) -> None:
        """Show the step and the number of steps that `position` returns, which are newer than the last log line."""
        self._position = position

    def show_ending(self, ending: Ending) -> None:
        """Show how the run has ended, and wait some seconds for open pages to load it."""
        with self._lock:
            self.ending = ending
        self._visitors.wait_for_last_versions(self.ended)

    def read_state(self) -> tuple[RunContents, dict[str, Any]]:
        """Return the contents of the run directory, and the state as /data.json has it."""
        with self._lock:
            contents = self._reader.read()
            ending = self.ending
            position = self._position() if self._position else (0, 0)
        if ending:
            contents = replace(contents, version=f"{contents.version}-{ending.kind}")
        return contents, describe_state(self.run, contents, position, ending)

    def render(self, layers: str) -> tuple[str, bool]:
        """Return the page, and True if it shows how the run ended. `layers` has patterns, see `build_histograms`."""
        contents, state = self.read_state()
        with self._lock:
            key = (contents.version, layers)
            if key not in self._rendered:
                start = time.thread_time()
                page = build_page(self.run, contents, state, self.ending if state["ended"] else None, layers)
                self._rendered = {key: render_page(page)}
                self._render_seconds = time.thread_time() - start
            return self._rendered[key], state["ended"] is not None

    def read_image(self, path: str) -> bytes | None:
        self._visitors.note_request()
        return read_image(self.run, path)

    def answer_page(self, query: dict[str, list[str]]) -> str:
        html, is_last = self.render(query.get("layers", [""])[-1][:MAX_PATTERN_CHARACTERS])
        self._visitors.note_request()
        self._visitors.note_page(is_last)
        return html

    def answer_data(self, query: dict[str, list[str]]) -> dict[str, Any]:
        if "since" in query:
            wait_s = IDLE_WAIT_S if "idle" in query else max(WAIT_S, self._render_seconds / MAX_RENDER_SHARE)
            with self._visitors.count_waiting():
                self.ended.wait(min(wait_s, IDLE_WAIT_S))
            return self.read_state()[1]
        contents, state = self.read_state()
        curves: list[dict[str, Any]] = []
        for chart in thin_curves(contents):
            series = [{"name": line.name, "step": list(line.x), "value": list(line.y)} for line in chart.series]
            curves.append({"title": chart.title, "unit": chart.unit, "series": series})
        return state | {"curves": curves}


class Visitors:
    """Counts the browser's open pages, so that the process can wait until they have loaded their last version."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0  # requests for the next state that are not answered yet
        self._answered_at = -math.inf  # when the latest of these requests was answered
        self._last_versions = 0  # pages that have loaded the last version
        self._requested_at = -math.inf  # time of the latest request for a page or an image

    def note_request(self) -> None:
        with self._changed:
            self._requested_at = time.monotonic()

    @contextlib.contextmanager
    def count_waiting(self) -> Iterator[None]:
        """Count a request for the next state while it waits within the block."""
        with self._changed:
            self._waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._answered_at = time.monotonic()

    def note_page(self, is_last: bool) -> None:
        with self._changed:
            self._last_versions += is_last
            self._changed.notify_all()

    def wait_for_last_versions(self, ended: threading.Event) -> None:
        """Set `ended`, then wait until open pages have loaded their last version, at most for twice FAREWELL_S."""
        with self._changed:
            is_between_requests = time.monotonic() - self._answered_at < 1.0  # an open page will ask again at once
            expected = max(self._waiting, int(is_between_requests))
            ended.set()
            self._changed.wait_for(lambda: self._last_versions >= expected, FAREWELL_S)
        end = time.monotonic() + FAREWELL_S
        while expected and time.monotonic() - self._requested_at < QUIET_S and time.monotonic() < end:
            time.sleep(0.05)


def read_image(run: Path, address: str, max_bytes: int = MAX_IMAGE_BYTES) -> bytes | None:
    """Return the first `max_bytes` of an image in RUN/images, given by its address on the page.

    Return None if the name is not that of a sheet, or the file is missing, a link, or does not begin as a PNG file.
    """
    name = address.removeprefix("/images/")
    if not address.startswith("/images/") or not IMAGE_NAME.fullmatch(name):
        return None
    try:
        with open_plain_file(run / "images" / name) as file:
            image = file.read(max_bytes)
    except OSError:
        return None
    return image if image.startswith(SIGNATURE) and len(image) >= PNG_HEAD_BYTES else None


def read_size(run: Path, name: str) -> tuple[int, int] | None:
    """Return width and height of an image in RUN/images, so that the page does not shift while it loads, or None."""
    head = read_image(run, f"/images/{name}", PNG_HEAD_BYTES)
    return (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) if head else None


# Contents of the page ------------------------------------------------------------------------------------------------


def describe_state(
    run: Path, contents: RunContents, position: tuple[int, int], ending: Ending | None
) -> dict[str, Any]:
    """Return the state of the run, as /data.json has it; `position` has the current step and the number of steps."""
    last = contents.logs[-1] if contents.logs else {}
    evaluated = contents.evaluations[-1] if contents.evaluations else {}
    step = max(position[0], last.get("step", 0), evaluated.get("step", 0))
    steps = position[1] or contents.steps
    rate = keep_finite(last.get("images_per_s"))
    state = {
        "run": str(run.absolute()),
        "version": contents.version,
        "step": step,
        "steps": steps or None,
        "epoch": keep_finite(last.get("epoch")),
        "loss": keep_finite(last.get("loss")),
        "images_per_s": rate,
        "seconds_left": (steps - step) * contents.global_batch / rate if rate and steps > step and not ending else None,
        "validation": {name: keep_finite(value) for name, value in evaluated.items() if name != "kind"} or None,
        "ended": {"kind": ending.kind, "sentence": ending.sentence} if ending else None,
    }
    return state | {"tiles": [{"label": t.label, "value": t.value, "note": t.note} for t in build_tiles(state)]}


def build_tiles(state: dict[str, Any]) -> list[Tile]:
    """Return the headline figures."""
    step, steps, validation = state["step"], state["steps"], state["validation"]
    epoch, loss, rate, left = (state[name] for name in ("epoch", "loss", "images_per_s", "seconds_left"))
    notes = [f"{math.floor(100 * min(1.0, step / steps))} % of {steps:,}"] if steps else []
    notes += [] if epoch is None else [f"epoch {epoch:.2f}"]
    top1, evaluated = "–", "not evaluated yet"
    if validation:
        top1, evaluated = format_percent(validation["top1"]), f"at step {validation['step']:,}"
    tiles = [
        Tile("step", f"{step:,}", "; ".join(notes) or "none yet"),
        Tile("training loss", "–" if loss is None else f"{loss:.4g}", "at the last log line"),
        Tile("validation top-1", top1, evaluated),
        Tile("images/s", "–" if rate is None else f"{rate:,.0f}", "at the last log line"),
    ]
    if not state["ended"]:
        tiles.append(Tile("time left", "–" if left is None else format_time(left), "without evaluations"))
    return tiles


def format_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60:,} h {minutes % 60:02} min"


def build_page(run: Path, contents: RunContents, state: dict[str, Any], ending: Ending | None, layers: str) -> Page:
    """Return the page; sections without contents are left out."""
    sections = []
    if charts := thin_curves(contents):
        sections.append(Section("Curves", "", charts))
    if contents.evaluations:
        sections.append(Section("Evaluations", "", [build_evaluation_table(contents.evaluations)]))
    if any(contents.histograms.values()):
        sections.append(build_histograms(contents, layers))
    if contents.images and (size := read_size(run, contents.images[-1])):
        newest, earlier = contents.images[-1], pick_evenly(contents.images[:-1], EARLIER_IMAGES)
        links = [Link(f"step {parse_image_step(name):,}", f"images/{name}") for name in earlier]
        caption = f"Input images of step {parse_image_step(newest):,}"
        sections.append(Section("Input images", "", [ImageSheet(f"images/{newest}", caption, *size, links)]))
    return Page(
        contents.name or run.absolute().name,
        f"run {run.absolute()}",
        build_tiles(state),
        sections,
        build_callouts(contents, ending),
        kind="live",
        version=contents.version,
        ended=ending is not None,
    )


def build_callouts(contents: RunContents, ending: Ending | None) -> list[Part]:
    """Return the callouts: how the run ended, or that it has no log line yet; and that it trains on noise."""
    callouts: list[Part] = []
    if ending is not None:
        callouts.append(Callout(TONES[ending.kind], ending.sentence, ending.remarks))
    elif not contents.logs:
        callouts.append(Callout("muted", "The run is starting; its first log line is not written yet."))
    if contents.record.get("data") == str(SYNTHETIC):
        callouts.append(Callout("warn", NOISE_WARNING))
    return callouts


def thin_curves(contents: RunContents) -> list[LineChart]:
    """Return the curves, each thinned to MAX_POINTS."""

    def thin_series(series: Series) -> Series:
        values = [keep_finite(value) for value in series.y]
        indices = choose_points(np.array(values, dtype=np.float64), MAX_POINTS)
        return Series(series.name, [series.x[index] for index in indices], [values[index] for index in indices])

    charts = build_curves(contents.logs, contents.evaluations)
    return [replace(chart, series=[thin_series(series) for series in chart.series]) for chart in charts]


def keep_finite(value: Any) -> float | None:
    """Return a number that a chart can show, below MAX_AXIS_VALUE; None for NaN, infinity and other types."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < MAX_AXIS_VALUE else None


def build_histograms(contents: RunContents, layers: str) -> Section:
    """Return the histograms of up to MAX_LAYERS parameters and their gradients, evenly chosen among those that match.

    `layers` has patterns of parameter names, such as 'stages.2*,head*'; if it is empty, all parameters match.
    """
    parameters, gradients = contents.histograms["parameters"], contents.histograms["gradients"]
    names = list(dict.fromkeys([*parameters, *gradients]))
    globs = [glob.strip() for glob in layers.split(",") if glob.strip()]
    matching = [name for name in names if any(fnmatchcase(name, glob) for glob in globs)] if globs else names
    shown = pick_evenly(matching, MAX_LAYERS)
    parts = []
    for name in shown:
        if name in parameters:
            parts.append(HistogramSteps(name, parameters[name]))
        if name in gradients:
            parts.append(HistogramSteps(f"{name}, gradient", gradients[name]))
    lead = f"{len(shown)} of {len(names)} parameters."
    if len(shown) < len(names):
        lead += " Others by name: add ?layers=head*,stages.2* to the address."
    return Section("Histograms", lead, parts)
