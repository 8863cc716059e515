"""Encoded images: what is decoded, and what is refused with its reason."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from viaduct.data.png import encode_png
from viaduct.errors import BadData, TooLarge
from viaduct.handover.decoding import decode_image, read_size


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP"])
def test_an_image_that_is_cut_short_is_called_so(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, kind)
    with pytest.raises(BadData, match=r"is a .*, but its header is damaged or cut short") as raised:
        decode_image(file.getvalue()[:13])
    assert "object at" not in raised.value.message


def test_a_png_of_too_many_pixels_is_refused_with_the_limit() -> None:
    encoded = encode_png(np.zeros((1, 1, 3), np.uint8))
    header = b"IHDR" + struct.pack(">II", 9000, 9000) + encoded[24:29]
    large = encoded[:12] + header + struct.pack(">I", zlib.crc32(header)) + encoded[33:]
    with pytest.raises(TooLarge, match="has 9,000 x 9,000 pixels; at most 67,108,864 are decoded"):
        decode_image(large)


def test_an_animated_gif_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert read_size(file.getvalue()) == (6, 8)
    assert decode_image(file.getvalue())[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"hello", "not an image of a known format"),
        (b"GIF89a", "it is a GIF, but its header is damaged"),
        (b"RIFF1234", "it is a WebP, but its header is damaged"),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadData, match=reason):
        decode_image(data)


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    data = encode_png(np.zeros((100, 100, 3), np.uint8))
    with pytest.raises(BadData, match="100 x 100 pixels; at most 9,999"):
        decode_image(data, max_pixels=9_999)


def test_a_small_gif_that_claims_very_many_pixels_is_refused() -> None:
    file = io.BytesIO()
    Image.new("L", (8, 6)).save(file, "GIF")
    data = bytearray(file.getvalue())
    data[6:10] = (10_000).to_bytes(2, "little") * 2
    with pytest.raises(BadData, match="the GIF claims 10,000 x 10,000 pixels, but has"):
        decode_image(bytes(data))
