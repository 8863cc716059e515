"""The server as a process: many and slow clients, signals, and ports in use."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier
from viaduct.handover.serving.limits import Limits

from .conftest import running, wait_until
from .sample_images import IMAGE

httpx = pytest.importorskip("httpx", reason="the tests of serve need httpx")
pytest.importorskip("uvicorn", reason="pip install 'viaduct[serve]'")

from viaduct.handover.serving.server import Address, bind_socket  # noqa: E402

TRANSPORT_ERRORS = {"ConnectError", "ReadError", "RemoteProtocolError", "WriteError"}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class SlowNetwork:
    """The classifier's network behind a gate."""

    def __init__(self, classifier: Classifier) -> None:
        self.network = classifier.network
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        self.gate.wait(30)
        logits: torch.Tensor = self.network(inputs)
        return logits


def test_a_full_queue_is_refused_and_says_when_to_come_back(classifier: Classifier) -> None:
    network = SlowNetwork(classifier)
    with running(classifier, Limits(queue=3, max_batch=2), network) as served, ThreadPoolExecutor(3) as pool:
        network.gate.clear()
        accepted = [pool.submit(served.client.post, "/predict", content=IMAGE) for _ in range(3)]
        wait_until(lambda: served.server.service.in_flight == 3)
        refused = served.client.post("/predict", content=IMAGE)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "3 images are waiting" in refused.json()["error"]
        assert served.client.get("/v2/health/live").status_code == 200  # the others are not held up
        network.gate.set()
        assert [answer.result().status_code for answer in accepted] == [200, 200, 200]
        assert served.client.post("/predict", content=IMAGE).status_code == 200


def test_stopping_answers_what_was_accepted_and_takes_no_more(classifier: Classifier) -> None:
    network = SlowNetwork(classifier)
    with running(classifier, Limits(max_batch=2), network) as served, ThreadPoolExecutor(6) as pool:
        network.gate.clear()
        accepted = [pool.submit(served.client.post, "/predict", content=IMAGE) for _ in range(6)]
        wait_until(lambda: served.server.service.in_flight == 6)
        served.server.handle_exit(signal.SIGTERM, None)
        wait_until(lambda: not is_listening(served.port))
        network.gate.set()
        assert [answer.result().status_code for answer in accepted] == [200] * 6


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def test_what_clients_send_wrong_does_not_fill_stderr(
    classifier: Classifier, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(classifier) as served:
        form = {"Content-Type": "multipart/form-data; boundary=a"}
        assert served.client.post("/predict", content=b"--b\r\n", headers=form).status_code == 400
        assert served.exchange(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert capfd.readouterr().err == ""


@contextmanager
def start_server(run: Path, port: int = 0, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `viaduct serve`; give the process and its address."""
    command = [sys.executable, "-m", "viaduct", "serve", str(run), "--port", str(port), "--device", "cpu", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(
            r"Serving \S+ \(10 classes, step 12\) on cpu in fp32, batch norms folded, at (http://\S+)$", line
        )
        assert found, (line, process.poll())
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def test_sigterm_under_load_answers_what_was_accepted(shapes_run: Path) -> None:
    stop = threading.Event()
    with start_server(shapes_run, 0, "--quiet") as (process, url), ThreadPoolExecutor(4) as pool:
        outcomes: list[int | str] = []
        workers = [pool.submit(send_requests, url, outcomes, stop) for _ in range(4)]
        wait_until(lambda: len(outcomes) > 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        stop.set()
        for worker in workers:
            worker.result()
        assert process.stderr is not None
        output = process.stderr.read()
        found = re.search(r"Stopped: ([\d,]+) requests received", output)
    assert "Batch norms folded: on 16 of the run's validation images probabilities differ by at most" in output
    assert found
    assert int(found[1].replace(",", "")) == outcomes.count(200)
    assert set(outcomes) <= {200, *TRANSPORT_ERRORS}


@pytest.mark.slow
def test_clients_of_a_killed_server_get_clean_errors_and_then_answers(shapes_run: Path) -> None:
    stop = threading.Event()
    with start_server(shapes_run, 0, "--quiet") as (first, url), ThreadPoolExecutor(4) as pool:
        outcomes: list[int | str] = []
        workers = [pool.submit(send_requests, url, outcomes, stop) for _ in range(4)]
        wait_until(lambda: len(outcomes) > 20)
        first.kill()
        first.wait()
        wait_until(lambda: "ConnectError" in outcomes)
        before = len(outcomes)
        with start_server(shapes_run, int(url.rsplit(":", 1)[1]), "--quiet"):
            wait_until(lambda: outcomes[before:].count(200) > 20)
            stop.set()
            for worker in workers:
                worker.result()
    assert set(outcomes) <= {200, *TRANSPORT_ERRORS}
    assert set(outcomes[-4:]) == {200}


def send_requests(url: str, outcomes: list[int | str], stop: threading.Event) -> None:
    with httpx.Client(base_url=url, verify=False, trust_env=False, timeout=20) as client:
        while not stop.is_set():
            try:
                outcomes.append(client.post("/predict", content=IMAGE).status_code)
            except httpx.TransportError as error:
                outcomes.append(type(error).__name__)
                time.sleep(0.02)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadValue, match=f"port {port} of 127.0.0.1 is in use"):
            bind_socket(Address("127.0.0.1", port))


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "\udcff", "a" * 80])
def test_an_address_of_another_machine_is_named(host: str) -> None:
    with pytest.raises(BadValue, match="--host"):
        bind_socket(Address(host, 0))
