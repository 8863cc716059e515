"""Preprocessing of TensorFlow's official ResNet."""

from __future__ import annotations

import numpy as np

from viaduct.data.png import encode_png
from viaduct.data.preprocess import preprocess
from viaduct.data.references.official import preprocessing


def test_colours_are_centred_and_not_scaled() -> None:
    white = preprocess("official", encode_png(np.full((256, 256, 3), 255, np.uint8)))
    np.testing.assert_allclose(white[0, 0], [255 - 123.68, 255 - 116.78, 255 - 103.94], atol=1e-4)
    assert preprocessing.recolour is None


def test_evaluation_takes_the_centre_and_not_the_edges() -> None:
    image = np.zeros((256, 256, 3), np.uint8)
    image[16:-16, 16:-16] = 255
    assert (preprocess("official", encode_png(image)) > 0).all()


def test_training_crops_have_the_references_area_and_ratio_and_cover_objects() -> None:
    sampler = preprocessing.sampler
    assert sampler is not None
    assert (sampler.area, sampler.ratio, sampler.uses_boxes) == ((0.05, 1.0), (0.75, 1.33), True)
