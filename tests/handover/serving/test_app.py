"""POST /predict: images of every kind, forms, limits, uploads that break off."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from viaduct.data.png import encode_png

from .conftest import Running, encode, predict, read_all
from .sample_images import IMAGES


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_is_answered_as_the_network_does(kind: str, served: Running) -> None:
    response = predict(served, IMAGES[kind], "?top=10")
    assert response.status_code == 200, response.text
    classifier = served.classifier
    inputs = torch.from_numpy(classifier.prepare(IMAGES[kind])).permute(2, 0, 1)[None]
    with torch.inference_mode():
        expected = classifier.network(inputs).softmax(1)[0].numpy()
    predictions = response.json()["predictions"]
    assert {row["index"] for row in predictions} == set(range(10))
    for row in predictions:
        assert row["label"] == classifier.labels[row["index"]]
        assert row["probability"] == pytest.approx(float(expected[row["index"]]), abs=1e-5)
    assert [row["probability"] for row in predictions] == sorted((r["probability"] for r in predictions), reverse=True)


def test_forty_megapixels_are_answered(served: Running) -> None:
    response = predict(served, encode(Image.new("RGB", (8000, 5000), (200, 30, 90)), "JPEG"))
    assert len(response.json()["predictions"]) == 5


def test_five_predictions_are_given_unless_another_number_is_requested(served: Running) -> None:
    image = IMAGES["1x1"]
    assert len(predict(served, image).json()["predictions"]) == 5
    assert len(predict(served, image, "?top=1").json()["predictions"]) == 1
    assert len(predict(served, image, "?top=99").json()["predictions"]) == 10
    assert len(predict(served, image, f"?top={'1' * 5000}").json()["predictions"]) == 10
    for top in ("0", "00", "-1", "x", "1.5", "", "²", "3&top=4"):
        assert predict(served, image, f"?top={top}").status_code == 400, top


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "image/x-anything; a=b"])
def test_the_content_type_of_an_image_does_not_matter(kind: str, served: Running) -> None:
    assert predict(served, IMAGES["JPEG"], kind=kind).status_code == 200


def test_an_image_of_too_many_pixels_is_refused_with_the_limit(served: Running) -> None:
    image = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(image)) + b"IHDR" + image + struct.pack(">I", zlib.crc32(b"IHDR" + image))
    response = predict(served, b"\x89PNG\r\n\x1a\n" + chunk)
    assert response.status_code == 413
    assert "at most 67,108,864 are decoded" in response.json()["error"]


def test_an_answer_carries_the_date_of_the_answer(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from viaduct.handover.serving import app

    monkeypatch.setattr(app, "formatdate", lambda usegmt: "Tue, 03 Nov 2026 10:00:00 GMT")
    response = predict(served, IMAGES["1x1"])
    assert response.headers.get_list("date") == ["Tue, 03 Nov 2026 10:00:00 GMT"]


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [
        ("application/json", b"{}", 415),
        ("text/plain", b"x", 415),
        ("application/x-www-form-urlencoded", b"@photo.jpg", 415),
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=a", b"", 400),
        ("multipart/form-data; boundary=a", b"no form", 400),
        ("multipart/form-data; boundary=a", b"--a\r\n\r\nx\r\n--a--\r\n", 400),
        (
            "multipart/form-data; boundary=a",
            b'--a\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + IMAGES["JPEG"],
            400,
        ),
        ("image/jpeg", b"", 400),
        ("image/jpeg", b"hello", 400),
        ("image/jpeg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", 400),
        ("image/jpeg", IMAGES["JPEG"][:600], 400),
        ("image/jpeg", IMAGES["16-bit PNG"][:100], 400),
        ("image/jpeg", IMAGES["animated GIF"][:200], 400),
        ("image/jpeg", IMAGES["TIFF"][:100], 400),
        ("image/jpeg", IMAGES["WebP"][:40], 400),
        ("image/jpeg", b"GIF89a", 400),
        ("image/jpeg", b"\xff\xd8\xff", 400),
        ("image/jpeg", b"\x89PNG\r\n\x1a\n", 400),
    ],
)
def test_what_is_no_image_is_refused_with_a_reason(kind: str, content: bytes, status: int, served: Running) -> None:
    response = predict(served, content, kind=kind)
    assert response.status_code == status, response.text
    assert response.json()["error"]


def test_a_decompression_bomb_is_refused_by_its_header(served: Running) -> None:
    bomb = encode_png(np.zeros((1, 1, 3), np.uint8))
    wide = bytearray(bomb)
    wide[16:24] = struct.pack(">II", 60_000, 60_000)
    wide[29:33] = struct.pack(">I", zlib.crc32(bytes(wide[12:29])))
    response = predict(served, bytes(wide))
    assert response.status_code == 413
    assert "pixels" in response.json()["error"]


@pytest.mark.parametrize(
    "request_bytes", [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", b"A" * 100_000, b"GET / HTTP/1.1\r\n\r\n"]
)
def test_data_that_are_not_http_are_refused_and_closed(request_bytes: bytes, served: Running) -> None:
    with served.connect() as link:
        link.sendall(request_bytes)
        link.shutdown(1)
        answer = link.recv(100)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 200"))
    assert served.client.get("/v2/health/live").status_code == 200


def test_requests_share_a_connection_and_may_follow_each_other_at_once(served: Running) -> None:
    image = IMAGES["1x1"]
    request = b"POST /predict?top=1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(image) + image
    answer = served.exchange(3 * request + b"GET /v2/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"HTTP/1.1 404") == 1


def test_a_client_that_expects_100_continue_gets_it(served: Running) -> None:
    image = IMAGES["JPEG"]
    head = (
        b"POST /predict HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    )
    with served.connect() as link:
        link.sendall(head % len(image))
        assert link.recv(1000).startswith(b"HTTP/1.1 100")
        link.sendall(image)
        assert read_all(link).startswith(b"HTTP/1.1 200")
    with served.connect() as link:  # and not, if it would be too much
        link.sendall(head % 99_999_999)
        assert read_all(link).startswith(b"HTTP/1.1 413")


def test_an_http_1_0_client_is_answered(served: Running) -> None:
    assert served.exchange(b"GET /v2/health/live HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
