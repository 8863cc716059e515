"""Preprocessing of the reference's ResNet-50 v1.5."""

from __future__ import annotations

import numpy as np

from viaduct.data import references
from viaduct.data.png import encode_png
from viaduct.data.preprocess import preprocess


def test_channels_are_standardised() -> None:
    grey = preprocess("v15", encode_png(np.full((256, 256, 3), 200, np.uint8)))
    expected = [(200 - 123.68) / 58.395, (200 - 116.28) / 57.12, (200 - 103.53) / 57.385]
    np.testing.assert_allclose(grey[3, 5], expected, rtol=1e-5)


def test_the_decoder_repeats_chroma_in_evaluation_and_in_training_unlike_the_official_one() -> None:
    v15, official = references.load("v15"), references.load("official")
    assert (v15.fancy_upsampling, v15.fancy_upsampling_in_training) == (False, False)
    assert (official.fancy_upsampling, official.fancy_upsampling_in_training) == (True, True)
    assert v15.sampler == official.sampler
