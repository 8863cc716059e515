"""Preprocessing of the reference's AmoebaNet-D."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.data import references
from viaduct.data.png import encode_png
from viaduct.data.preprocess import preprocess


@pytest.mark.parametrize(("value", "expected"), [(0, -1.0), (255, 1.0)])
def test_pixels_are_scaled_to_minus_one_to_one(value: int, expected: float) -> None:
    image = preprocess("amoebanet", encode_png(np.full((64, 64, 3), value, np.uint8)), size=32)
    np.testing.assert_allclose(image, expected, atol=1e-6)


def test_evaluation_takes_the_central_seven_eighths() -> None:
    image = np.zeros((160, 160, 3), np.uint8)
    image[10:-10, 10:-10] = 255
    assert (preprocess("amoebanet", encode_png(image), size=140) == 1).all()
    image[10] = 0
    assert (preprocess("amoebanet", encode_png(image), size=140)[0] == -1).all()


def test_training_varies_chroma_of_crops_of_any_part() -> None:
    amoebanet = references.load("amoebanet")
    assert amoebanet.sampler is not None
    assert (amoebanet.sampler.uses_boxes, amoebanet.sampler.area) == (False, (0.1, 1.0))
    assert amoebanet.recolour is not None
    varied = amoebanet.recolour(np.random.default_rng(1))(np.full((1, 1, 3), 128, np.float32))
    assert abs(varied - 128).max() > 1
