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

import abc
import contextlib
import errno
import json
import math
import re
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

import numpy as np

from viaduct.data.png import SIGNATURE
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadValue
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

LOOPBACK = "127.0.0.1"
# Host headers that are answered; another name may be a foreign site whose name resolves to this machine (DNS
# rebinding). Any port is allowed, because the local end of a tunnel (`ssh -L`) has its own.
ALLOWED_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
MAX_POINTS = 400  # points of a curve that are drawn
MAX_LAYERS = 12  # parameters whose histograms are drawn, each with its gradient
MAX_PATTERN_CHARACTERS = 200  # of `?layers=` in an address
EARLIER_IMAGES = 10  # links to earlier sheets of input images
WAIT_S = 2.0  # shortest wait before a request with `?since` is answered
IDLE_WAIT_S = 15.0  # longest wait; also the wait for hidden tabs, whose requests have `&idle`
# Share of a core that rendering for one open page may take, because it slows down training.
MAX_RENDER_SHARE = 0.01
FAREWELL_S = 3.0  # longest wait for open pages to load the version that shows how the run ended
QUIET_S = 0.4  # if no request has come for so long, open pages have loaded their images, too
PNG_HEAD_BYTES = 24  # signature, length and type of the first chunk, width, height
MAX_IMAGE_BYTES = 64 << 20
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
TONES: dict[str, Tone] = {"finished": "good", "interrupted": "warn", "stopped": "bad"}


@dataclass(frozen=True)
class Ending:
    """A sentence on how a run has ended, and remarks on what can be done now."""

    kind: Literal["finished", "interrupted", "stopped"]
    sentence: str
    remarks: tuple[Remark, ...] = ()


class ServedPage(abc.ABC):
    """A page with its server, which runs in a daemon thread; subclasses answer the requests.

    A subclass calls this `__init__` at the end of its own, because requests may come at once. `flag` is the flag that
    gave the port, for the message of an error.
    """

    def __init__(self, port: int, flag: str = "--watch-port") -> None:
        self.closed = False  # True: connections end without an answer
        self.ended = threading.Event()  # ends the wait of requests with `?since`
        self._lock = threading.Lock()
        self._server = bind_server(port, flag)
        self._server.page = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True, name="viaduct-watch"
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    @abc.abstractmethod
    def answer_page(self, query: dict[str, list[str]]) -> str:
        """Return the HTML of /."""

    @abc.abstractmethod
    def answer_data(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return the content of /data.json."""

    def read_image(self, path: str) -> bytes | None:
        """Return the image at an address below /images; None if there is none, as on a page without images."""
        return None

    def close(self) -> None:
        """Stop listening; open connections get no further answer. May be called twice."""
        if self.closed:
            return
        self.closed = True
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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
        super().__init__(port)

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


# The server ----------------------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """HTTP server of one page; each connection has a thread."""

    daemon_threads = True
    page: ServedPage

    def server_bind(self) -> None:
        """Bind without resolving this machine's name, as http.server would."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed or silent connection; print any other error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind_server(port: int, flag: str = "--watch-port") -> Server:
    """Return a server that listens on a port of this machine (0: any free one); raise BadValue if it cannot."""
    try:
        return Server((LOOPBACK, port), Handler)
    except OSError as error:
        reasons = {errno.EADDRINUSE: "another process listens there", errno.EACCES: "it needs privileges"}
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        message = f"{flag} {port} cannot be used: {reason}."
        raise BadValue(message, f"Leave {flag} out for a port that is free, or give another one.") from None


def check_port(port: int) -> None:
    """Raise BadValue if no server can listen on a port."""
    if port:
        bind_server(port).server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of /, /data.json and the images; refuses other methods, addresses and host names.

    http.server calls `do_GET`, `do_POST` and so on, which `__getattr__` returns.
    """

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "viaduct", ""
    timeout = 60  # seconds for which a connection may be silent
    server: Server

    def __getattr__(self, name: str) -> Any:
        if name in ("do_GET", "do_HEAD"):
            return self.answer
        if name.startswith("do_"):
            return self.refuse_method
        raise AttributeError(name)

    def answer(self) -> None:
        """Answer GET or HEAD; refuse a request without exactly one Host header of this machine."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not ALLOWED_HOST.fullmatch(hosts[0].strip()):
            self.send_text(HTTPStatus.FORBIDDEN, "This page is served as 127.0.0.1 or localhost only.")
            return
        path, _, query_string = self.path.partition("?")
        query = parse_qs(query_string)
        if self.server.page.closed:
            self.close_connection = True
            return
        if path == "/":
            self.send(HTTPStatus.OK, HTML, self.server.page.answer_page(query).encode("utf-8", "backslashreplace"))
        elif path == "/data.json":
            self.send(HTTPStatus.OK, JSON, json.dumps(self.server.page.answer_data(query), allow_nan=False).encode())
        elif image := self.server.page.read_image(path):
            self.send(HTTPStatus.OK, "image/png", image, {"Cache-Control": "private, max-age=3600"})
        else:
            self.send_text(HTTPStatus.NOT_FOUND, "There is no such address: / is the page, /data.json its figures.")

    def refuse_method(self) -> None:
        self.close_connection = True  # the request may have a body, which is not read
        self.send_text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only.", {"Allow": "GET, HEAD"})

    def send_text(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self.send(status, TEXT, f"{text}\n".encode(), headers)

    def send(self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        common_headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in (common_headers | (headers or {})).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the run's output."""


def read_image(run: Path, address: str, max_bytes: int = MAX_IMAGE_BYTES) -> bytes | None:
    """Return the first `max_bytes` of an image in RUN/images, given by its address on the page.

    Return None if the name is not that of a sheet, or the file is missing, a link, or no PNG file.
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
    """Return width and height of an image in RUN/images, so that the page does not shift while it loads."""
    head = read_image(run, f"/images/{name}", PNG_HEAD_BYTES)
    return (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) if head else None


# Contents of the page ------------------------------------------------------------------------------------------------


def describe_state(
    run: Path, contents: RunContents, position: tuple[int, int], ending: Ending | None
) -> dict[str, Any]:
    """Return the state of the run, as /data.json has it."""
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
