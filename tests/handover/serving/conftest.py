"""A server of the short run of shapes, in a thread of the test process."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

from viaduct.handover.classifier import Classifier
from viaduct.handover.serving.batching import Run
from viaduct.handover.serving.limits import Limits

NAME = "shapes"


@dataclass
class Running:
    """A server that answers; `server` is uvicorn's."""

    server: Any
    port: int
    classifier: Classifier
    log: io.StringIO
    client: Any  # of httpx

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout: float = 20.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def exchange(self, request: bytes) -> bytes:
        """Return everything that the server sends for these bytes until it closes the connection."""
        with self.connect() as link:
            link.sendall(request)
            return read_all(link)


def read_all(link: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := link.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@contextmanager
def running(classifier: Classifier, limits: Limits | None = None, run: Run | None = None) -> Iterator[Running]:
    httpx = pytest.importorskip("httpx", reason="the tests of serve need httpx")
    pytest.importorskip("uvicorn", reason="pip install 'viaduct[serve]'")

    from viaduct.handover.serving.server import Address, bind_socket, build_server

    listener = bind_socket(Address("127.0.0.1", 0))
    port = listener.getsockname()[1]
    ready, log = threading.Event(), io.StringIO()
    server = build_server(
        classifier, run or classifier.network, name=NAME, limits=limits or Limits(), log=log, on_ready=ready.set
    )
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        assert ready.wait(60)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False, timeout=30) as client:
            yield Running(server, port, classifier, log, client)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def served(classifier: Classifier) -> Iterator[Running]:
    with running(classifier) as server:
        yield server


def draw(height: int = 32, width: int = 32, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def encode(image: Any, format: str = "PNG", **options: Any) -> bytes:
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def predict(served: Running, content: bytes, query: str = "", kind: str = "image/jpeg") -> Any:
    return served.client.post(f"/predict{query}", content=content, headers={"Content-Type": kind})


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
