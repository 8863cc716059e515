"""Chromium for tests, driven over its DevTools pipe with the standard library alone.

    visit = open_page(path, dark=True, width=400, script="document.querySelector('th button').click()")
    assert visit.console == [] and visit.requests == []

One call is one fresh browser with an empty profile, which asks the network for nothing of its own: whatever
`requests` holds, the page asked for.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for found in map(shutil.which, NAMES) if found), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason=f"none of {', '.join(NAMES)} is on the PATH")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium expects its pipe on descriptors 3 and 4; this puts it there whatever the shell."""
PATIENCE = 60.0


@dataclass(frozen=True)
class Visit:
    """Findings of one visit to a page."""

    dom: str
    console: list[str]
    """Every console message, uncaught error and browser complaint."""
    requests: list[str]
    """Every address asked for, but for the file itself and data: addresses."""
    screenshot: bytes
    """The whole page as PNG, not only what fits the window."""
    answer: Any = None
    """What `script` evaluated to."""


@dataclass
class DevTools:
    """Client of the DevTools protocol: numbered commands go out on one pipe, answers and events come in on another.

    Each message ends in NUL.
    """

    commands: int
    answers: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    unread: bytes = b""
    sent: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        answer = self.wait_for(lambda heard: heard.get("id") == self.sent)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def wait_for_event(self, method: str) -> None:
        if not any(event["method"] == method for event in self.events):
            self.wait_for(lambda heard: heard.get("method") == method)

    def wait_for(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self.read(deadline)
            if "method" in message:
                self.events.append(message)
            if wanted(message):
                return message

    def read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.unread:
            with selectors.DefaultSelector() as ready:
                ready.register(self.answers, selectors.EVENT_READ)
                assert ready.select(max(0.0, deadline - time.monotonic())), "the browser fell silent"
            piece = os.read(self.answers, 1 << 20)
            assert piece, "the browser went away"
            self.unread += piece
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser() -> Iterator[DevTools]:
    """Start Chromium with an empty profile; end it afterwards."""
    reading, commands = pipe_from_ten()
    answers, writing = pipe_from_ten()
    with tempfile.TemporaryDirectory(prefix="viaduct-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                LAUNCH,
                str(reading),
                str(writing),
                str(CHROMIUM),
                *FLAGS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(reading, writing),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reading)
        os.close(writing)
        try:
            yield DevTools(commands, answers)
        finally:
            end_browser(process, commands, answers)


def pipe_from_ten() -> list[int]:
    """Return a pipe with file descriptors from 10 on: LAUNCH overwrites 3 and 4."""
    low = os.pipe()
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10) for number in low]
    for number in low:
        os.close(number)
    return high


def end_browser(process: subprocess.Popen[bytes], *pipes: int) -> None:
    """Close the pipes, upon which Chromium exits; kill it if it does not."""
    for pipe in pipes:
        os.close(pipe)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def open_page(
    path: str | os.PathLike[str],
    *,
    width: int = 1200,
    dark: bool = False,
    script: str = "",
    with_scripts: bool = True,
) -> Visit:
    """Open a file, evaluate `script` in it, and report how the page then looks and what it asked for."""
    address = Path(path).resolve().as_uri()
    with browser() as tools:
        target = tools.call("Target.createTarget", url="about:blank")["targetId"]
        tools.session = tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        prepare(tools, width, dark, with_scripts)
        tools.call("Page.navigate", url=address)
        tools.wait_for_event("Page.loadEventFired")
        answer = evaluate(tools, script) if script else None
        screenshot = capture(tools, width)
        root = tools.call("DOM.getDocument")["root"]["nodeId"]
        dom = tools.call("DOM.getOuterHTML", nodeId=root)["outerHTML"]
        requests = [asked for asked in list_requests(tools) if asked != address and not asked.startswith("data:")]
        return Visit(dom, complaints(tools), requests, screenshot, answer)


def prepare(tools: DevTools, width: int, dark: bool, with_scripts: bool) -> None:
    for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
        tools.call(f"{domain}.enable")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tools.call("Emulation.setEmulatedMedia", features=[scheme])
    tools.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    tools.call("Emulation.setScriptExecutionDisabled", value=not with_scripts)


def evaluate(tools: DevTools, script: str) -> Any:
    outcome = tools.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in outcome, f"the test's own script failed: {outcome['exceptionDetails']}"
    return outcome["result"].get("value")


def capture(tools: DevTools, width: int) -> bytes:
    height = tools.call("Page.getLayoutMetrics")["cssContentSize"]["height"]
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = tools.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
    return base64.b64decode(shot["data"])


def list_requests(tools: DevTools) -> list[str]:
    sent = [event["params"] for event in tools.events if event["method"] == "Network.requestWillBeSent"]
    return [parameters["request"]["url"] for parameters in sent]


def complaints(tools: DevTools) -> list[str]:
    """Return console calls, uncaught errors, and the browser's own log (blocked requests, policy violations)."""
    readers = {
        "Runtime.consoleAPICalled": lambda heard: " ".join(
            str(part.get("value", part.get("description", ""))) for part in heard["args"]
        ),
        "Runtime.exceptionThrown": lambda heard: json.dumps(heard["exceptionDetails"]),
        "Log.entryAdded": lambda heard: heard["entry"]["text"],
    }
    return [readers[event["method"]](event["params"]) for event in tools.events if event["method"] in readers]
