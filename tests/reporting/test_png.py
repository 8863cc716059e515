"""Images inside of pages have the pixels that were given."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from viaduct.reporting.png import data_uri, encode_png


@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 1, 3), (4, 3, 4)])
def test_every_pixel_comes_back(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)


def test_a_view_in_another_memory_order_is_encoded_as_seen():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 8), dtype=np.uint8).transpose(1, 2, 0)
    assert encode_png(pixels) == encode_png(pixels.copy())


def test_a_data_uri_holds_the_same_bytes():
    head, _, body = data_uri(b"\x00\xff").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body) == b"\x00\xff"
