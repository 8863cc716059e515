"""A worker that crashes, hangs or is killed."""

from __future__ import annotations

import sys

import pytest

from viaduct.errors import ViaductError
from viaduct.tuning.worker_process import Interrupted, Worker, WorkerFailed

pytestmark = pytest.mark.process

CODE = """
import os, signal, time
from viaduct.errors import BadValue
from viaduct.tuning.request_server import serve
def die(request): os.kill(os.getpid(), signal.SIGSEGV)
def hang(request): time.sleep(60)
def refuse(request): raise BadValue("no such thing.", "Try another.")
def add(request):
    print("noise on standard output")
    return {"sum": request["a"] + request["b"]}
serve({"die": die, "hang": hang, "add": add, "refuse": refuse, "fail": lambda request: 1 / 0})
"""


def make_worker(**options: object) -> Worker:
    return Worker([sys.executable, "-c", CODE], **options)  # type: ignore[arg-type]


def test_a_candidate_that_kills_its_process_kills_nothing_else() -> None:
    worker = make_worker()
    try:
        assert worker.send_request({"do": "add", "a": 1, "b": 2}, 60) == {"sum": 3}
        with pytest.raises(WorkerFailed, match="SIGSEGV"):
            worker.send_request({"do": "die"}, 60)
        assert worker.send_request({"do": "add", "a": 1, "b": 2}, 60) == {"sum": 3}
        assert worker.starts == 2
        assert worker.send_request({"do": "fail"}, 60) == {"error": "ZeroDivisionError: division by zero"}
        with pytest.raises(ViaductError, match="no such thing"):
            worker.send_request({"do": "refuse"}, 60)
    finally:
        worker.stop()


def test_a_candidate_that_hangs_is_ended() -> None:
    worker = make_worker()
    with pytest.raises(WorkerFailed, match="no answer within 1 s"):
        worker.send_request({"do": "hang"}, 1)
    assert worker.process is None


def test_an_interrupt_ends_the_wait() -> None:
    worker = make_worker(is_interrupted=lambda: True)
    with pytest.raises(Interrupted):
        worker.send_request({"do": "hang"}, 60)
    assert worker.process is None
