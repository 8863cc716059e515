"""The encoder's bytes, read back by hand along the PNG specification."""

import base64
import struct
import zlib

import numpy as np
import pytest

from viaduct.reporting.png import data_uri, encode_png


def chunks(png: bytes) -> dict[bytes, bytes]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    found, position = {}, 8
    while position < len(png):
        length, kind = struct.unpack_from(">I4s", png, position)
        body = png[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack_from(">I", png, position + 8 + length)
        assert checksum == zlib.crc32(kind + body)
        found[kind] = body
        position += 12 + length
    return found


@pytest.mark.parametrize(("shape", "colour_type"), [((5, 7, 3), 2), ((1, 1, 3), 2), ((4, 3, 4), 6)])
def test_every_pixel_comes_back(shape, colour_type):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    found = chunks(encode_png(pixels))
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    height, width, channels = shape
    assert struct.unpack(">IIBBBBB", found[b"IHDR"]) == (width, height, 8, colour_type, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert not rows[:, 0].any(), "filter 0 on every row"
    assert (rows[:, 1:].reshape(shape) == pixels).all()


def test_a_view_in_another_memory_order_is_encoded_as_seen():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 8), dtype=np.uint8).transpose(1, 2, 0)
    assert encode_png(pixels) == encode_png(pixels.copy())


def test_a_data_uri_holds_the_same_bytes():
    head, _, body = data_uri(b"\x00\xff").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body) == b"\x00\xff"
