"""Bodies of requests: their limits, and forms."""

from __future__ import annotations

import pytest

from viaduct.handover.classifier import Classifier
from viaduct.handover.serving.limits import Limits, Refusal
from viaduct.handover.serving.uploads import UploadMemory

from .conftest import Running, predict, running, wait_until
from .sample_images import IMAGE, IMAGES


def test_a_form_with_a_file_is_taken(served: Running) -> None:
    plain = predict(served, IMAGES["JPEG"]).json()
    form = served.client.post(
        "/predict", files={"other": b"x", "file": ("../../etc/passwd", IMAGES["JPEG"])}, data={"a": "b"}
    )
    assert form.json() == plain


def test_a_form_with_two_files_is_refused(served: Running) -> None:
    form = served.client.post("/predict", files=[("file", ("a", IMAGES["JPEG"])), ("file", ("b", IMAGES["1x1"]))])
    assert form.status_code == 400
    assert "has 2 parts called 'file'" in form.json()["error"]


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(served: Running) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\nContent-Length: 999999999999\r\n\r\n"
    with served.connect() as link:
        link.sendall(head)
        answer = link.recv(10_000) + link.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'{"error": "the body has more than 33,554,432 bytes."}' in answer


def test_a_body_without_a_length_is_refused_while_it_is_read(served: Running) -> None:
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: image/png\r\n\r\n"
    answer = served.exchange(head + 40 * piece + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


def test_an_upload_that_breaks_off_leaves_nothing_behind(served: Running) -> None:
    service = served.server.service
    for _ in range(3):
        with served.connect() as link:
            link.sendall(
                b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 5000\r\n\r\n"
            )
            link.sendall(bytes(1000))
    assert predict(served, IMAGES["JPEG"]).status_code == 200
    for _ in range(100):
        if (service.uploads.used, service.in_flight) == (0, 0):
            break
        served.client.get("/v2")
    assert (service.uploads.used, service.in_flight) == (0, 0)


def test_uploads_share_a_bounded_memory(classifier: Classifier) -> None:
    with running(classifier) as served:
        uploads = served.server.service.uploads
        uploads.limit = 100_000
        with served.connect() as link:
            link.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 95000\r\n\r\n" + bytes(90_000))
            wait_until(lambda: uploads.used == 90_000)
            refused = served.client.post("/predict", content=bytes(20_000))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        wait_until(lambda: uploads.used == 0)
        assert served.client.post("/predict", content=IMAGE).status_code == 200


def test_memory_of_an_upload_is_free_again_after_an_error() -> None:
    memory = UploadMemory(Limits())
    memory.limit = 10
    with memory.reserve() as reservation:
        reservation.add(10)
        with pytest.raises(Refusal) as caught:
            reservation.add(1)
    assert (caught.value.status, caught.value.retry_after, memory.used) == (503, 1, 0)
