"""Values that were multiplied by one factor."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import Array, ComparisonBuilder, name_cause_of_output


def test_one_factor_everywhere_is_a_wrong_scale(values: Array) -> None:
    builder = ComparisonBuilder()
    builder.add("network", values / 255, values, "input")
    cause = builder.causes(kind="input")[0]
    assert cause.name == "wrong scale"
    assert "0.0039" in cause.evidence


def test_images_with_another_normalisation_are_a_wrong_scale(values: Array) -> None:
    left = values * np.linspace(0.5, 2, 16, dtype=np.float32)[:, None, None] + 0.3
    assert name_cause_of_output(left.astype(np.float32), values) == "wrong scale"
