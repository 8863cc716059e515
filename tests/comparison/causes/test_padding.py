"""Padding of another size or place."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import Array, Layer, convolve, name_cause_of_output


def test_padding_moved_by_a_cell_is_found_at_stride_two() -> None:
    layer = Layer(stride=2)
    assert layer.find_cause_of(convolve(layer.x, layer.weight, 2, (0, 0))) == "wrong padding"


def test_differences_along_the_border_only_are_a_wrong_padding(values: Array) -> None:
    left = values.copy()
    left[:, :, 0] += 0.3 * values[:, :, 1]
    left[:, :, :, -1] += 0.3 * values[:, :, :, 1]
    assert name_cause_of_output(left, values) == "wrong padding"


def test_an_image_moved_by_a_cell_is_a_wrong_padding(values: Array) -> None:
    assert name_cause_of_output(np.roll(values, 1, 3), values) == "wrong padding"
