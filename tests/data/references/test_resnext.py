"""Preprocessing of the reference's ResNeXt-50."""

from __future__ import annotations

import numpy as np

from viaduct.data import references
from viaduct.data.png import encode_png
from viaduct.data.preprocess import preprocess


def test_evaluation_takes_the_central_four_fifths() -> None:
    image = np.zeros((200, 400, 3), np.uint8)
    image[20:-20, 40:-40] = 255
    inside = preprocess("resnext", encode_png(image), size=40)
    assert (inside[2:-2, 2:-2] > 0).all()
    image[:24], image[:, :48] = 0, 0  # 2 % more of the height and the width
    assert (preprocess("resnext", encode_png(image), size=40)[0] < 0).all()


def test_colours_are_standardised_by_the_references_own_figures() -> None:
    grey = preprocess("resnext", encode_png(np.full((64, 64, 3), 130, np.uint8)))
    np.testing.assert_allclose(grey[1, 1], [9 / 70, 15 / 68, 30 / 71], rtol=1e-4)


def test_training_varies_saturation_and_crops_in_a_square_frame() -> None:
    resnext = references.load("resnext")
    assert resnext.sampler is not None
    assert resnext.sampler.frame == 280
    assert resnext.recolour is not None
    change = resnext.recolour(np.random.default_rng(1))
    grey, orange = (change(np.full((2, 2, 3), colour, np.float32)) for colour in (128, (200, 100, 50)))
    assert np.ptp(grey) < 1e-3, "grey has no saturation to vary"
    assert abs(np.ptp(orange[0, 0]) - 150) > 1
