"""Connections of slow clients: dropped in favour of others."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from viaduct.handover.classifier import Classifier
from viaduct.handover.serving.limits import Limits

from .conftest import read_all, running, wait_until
from .sample_images import IMAGE


def test_slow_clients_are_dropped_for_new_ones(classifier: Classifier) -> None:
    import httpx

    with running(classifier, Limits(connections=20)) as served:
        slow = [served.connect() for _ in range(60)]
        try:
            for number, link in enumerate(slow):
                head = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
                with suppress(OSError):  # some have had to make room
                    link.sendall(head if number % 2 else head + b"Content-Length: 9\r\n\r\n")
            for _ in range(5):
                with httpx.Client(base_url=served.url, verify=False, trust_env=False, timeout=20) as client:
                    assert client.post("/predict", content=IMAGE).status_code == 200
            assert len(served.server.guard.open) <= 21
        finally:
            for link in slow:
                link.close()


def test_slow_clients_are_dropped(classifier: Classifier) -> None:
    limits = Limits(head_seconds=0.2, idle_seconds=0.3, upload_grace=0.3, upload_rate=1 << 30)
    with running(classifier, limits) as served, ExitStack() as links:
        silent, half, upload, idle = (links.enter_context(served.connect()) for _ in range(4))
        half.sendall(b"GET /v2 HTTP/1.1\r\nHost:")
        upload.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\nabc")
        idle.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(silent) == b""
        assert read_all(half) == b""
        assert read_all(upload).startswith(b"HTTP/1.1 408")
        assert read_all(idle).startswith(b"HTTP/1.1 200")
        wait_until(lambda: not served.server.guard.open)
