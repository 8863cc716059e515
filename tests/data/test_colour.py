"""The compiled colours are those of numpy, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.data.colour import scale_saturation, scale_saturation_in_numpy
from viaduct.data.compiled import find_compiled


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 1.37, 1.6])
def test_saturation_is_the_same_compiled_or_not(factor: float) -> None:
    image = np.random.default_rng(0).uniform(0, 255, (31, 45, 3)).astype(np.float32)
    image[:3] = 7  # grey
    image[3:6] -= 200  # contrast may have taken a channel, or all, below zero
    image[6] = 0
    first, second = image.copy(), image.copy()
    scale_saturation(first, factor)
    scale_saturation_in_numpy(second, factor)
    assert np.array_equal(first, second)
    assert factor == 1.0 or not np.array_equal(first, image)


def test_a_view_is_changed_in_place() -> None:
    image = np.random.default_rng(0).uniform(0, 255, (8, 12, 3)).astype(np.float32)
    expected = image[:, ::2].copy()
    scale_saturation_in_numpy(expected, 1.3)
    scale_saturation(image[:, ::2], 1.3)
    assert np.array_equal(image[:, ::2], expected)


@pytest.mark.skipif(find_compiled("_lerp", "saturate") is None, reason="the extension was not built")
def test_wrong_images_are_refused() -> None:
    saturate = find_compiled("_lerp", "saturate")
    assert saturate is not None
    with pytest.raises(TypeError):
        saturate(np.zeros((2, 2, 3)), 1.0)
    with pytest.raises(ValueError, match="height x width x 3"):
        saturate(np.zeros((2, 2), np.float32), 1.0)
