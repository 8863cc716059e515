"""Parts of an image that evaluation uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simplejpeg

from viaduct.data.geometry import resample
from viaduct.data.png import encode_png
from viaduct.data.preprocess import prepare_image
from viaduct.data.views import crop_central_four_fifths, crop_central_seven_eighths, scale_to_shorter_side

from .photographs import tensorflow


def test_the_shorter_side_is_truncated_in_float32_as_in_tensorflow() -> None:
    """256 / n * n is not always 256 there; for these n the shorter side becomes 255."""
    tf = tensorflow()
    sides = tf.range(1, 3000, dtype=tf.float32)
    theirs = tf.cast(sides * (256.0 / sides), tf.int32).numpy()
    assert [scale_to_shorter_side(256, side, side)[0] for side in range(1, 3000)] == theirs.tolist()
    assert (theirs == 255).any()


def test_inputs_of_very_few_pixels_have_the_colours_of_the_image() -> None:
    colours = np.array([[[0, 40, 80]] * 300] * 200, np.uint8)
    grey = simplejpeg.encode_jpeg(np.ascontiguousarray(colours), quality=98)
    for size in (1, 2, 3, 4):
        np.testing.assert_allclose(prepare_image("official", grey, size=size), colours[:size, :size], atol=4)


def test_the_centre_is_cropped_with_the_shorter_side_at_eight_sevenths() -> None:
    image = np.zeros((256, 512, 3), np.uint8)
    image[16:-16, 144:-144] = 255  # 224x224 in the middle
    view = prepare_image("official", encode_png(image))
    assert (view == 255).all()


@pytest.mark.parametrize(("view", "share"), [(crop_central_four_fifths, 0.8), (crop_central_seven_eighths, 0.875)])
def test_a_central_part_is_symmetric_and_of_its_share(view: Any, share: float) -> None:
    for side in (80, 240):
        ramp = np.repeat(np.arange(side, dtype=np.uint8)[:, None, None], 3, axis=2).repeat(side, axis=1)
        seen = resample(ramp, *view(side, side, 80)[:2])[:, 0, 0]
        assert seen[0] >= side * (1 - share) / 2 - 1
        assert abs((seen[-1] - seen[0]) / (side * share) - 1) < 0.03
