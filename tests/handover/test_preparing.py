"""Images become the inputs of evaluation."""

from __future__ import annotations

import io
from functools import partial

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from viaduct.data.png import encode_png
from viaduct.data.preprocess import preprocess
from viaduct.data.records import Records
from viaduct.handover.preparing import fit_pixels, prepare_encoded


@pytest.mark.parametrize("name", ["official", "v15", "resnext", "amoebanet"])
def test_an_encoded_image_is_prepared_as_its_reference_does(name: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    data = simplejpeg.encode_jpeg(pixels, colorspace="RGB")
    prepared = prepare_encoded(Records(global_batch=8, size=64, preprocess=name), None, data)  # type: ignore[arg-type]
    assert np.array_equal(prepared, preprocess(name, data, size=64))  # type: ignore[operator]


def test_a_bitmap_is_prepared_as_a_png_of_the_same_pixels() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8)
    bitmap = io.BytesIO()
    Image.fromarray(pixels).save(bitmap, "BMP")
    prepare = partial(prepare_encoded, Records(global_batch=8, size=32), None)
    assert np.allclose(prepare(bitmap.getvalue()), prepare(encode_png(pixels)), atol=1e-4)


def test_an_image_is_cropped_around_its_centre_and_resized() -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 200
    assert (fit_pixels(pixels, (10, 10)) == 200).all()
    assert fit_pixels(pixels[:1, :1], (10, 10)).shape == (10, 10, 3)
