"""The access log: a line of JSON for each request."""

from __future__ import annotations

import io
import json
import threading

import pytest

from viaduct.handover.classifier import Classifier
from viaduct.handover.serving import access_log
from viaduct.handover.serving.access_log import AccessLog

from .conftest import running, wait_until
from .sample_images import IMAGE


def test_each_request_is_a_line_of_json_in_the_log(classifier: Classifier) -> None:
    with running(classifier) as served:
        served.client.post("/predict?top=1", content=IMAGE)
        served.client.get("/%1b[31mred%0a")
    lines = [json.loads(line) for line in served.log.getvalue().splitlines()]
    assert [(line["method"], line["status"]) for line in lines] == [("POST", 200), ("GET", 404)]
    assert lines[0]["images"] == lines[0]["batch"] == 1
    assert lines[0]["bytes_in"] == len(IMAGE)
    assert lines[0]["total_ms"] >= lines[0]["network_ms"] > 0
    assert served.log.getvalue().isascii()
    assert "\x1b" not in served.log.getvalue()


class StuckStream(io.StringIO):
    """A terminal that takes nothing until it is released, and then fails once."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.failed = threading.Event(), False

    def write(self, text: str) -> int:
        self.released.wait(10)
        if not self.failed:
            self.failed = True
            raise OSError("no space left on device")
        return super().write(text)


def test_a_stuck_stream_delays_nobody_and_lost_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MAX_LINES", 2)
    stream = StuckStream()
    log = AccessLog(stream)
    log.add(number=0)
    wait_until(lambda: not log.lines)  # the thread has taken it and is stuck
    for number in range(1, 6):
        log.add(number=number)
    assert log.dropped == 3
    stream.released.set()
    wait_until(lambda: not log.lines)
    log.add(number=6)
    log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("number") for line in lines if "number" in line] == [1, 2, 6]
    assert sum(line.get("dropped_lines", 0) for line in lines) == 4  # three, and the one of the failed write
