"""Infinities, and values saturated at the largest number of a format."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import Array, name_cause_of_output


def test_infinities_on_the_left_are_an_overflow(values: Array) -> None:
    left = values.copy()
    left[0, 3, 2, 2] = np.inf
    assert name_cause_of_output(left, values) == "overflow"


def test_values_saturated_at_the_largest_float16_are_an_overflow(values: Array) -> None:
    right = values * 50000
    assert name_cause_of_output(np.clip(right, -65504, 65504), right) == "overflow"
