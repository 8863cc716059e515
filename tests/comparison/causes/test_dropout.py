"""Values that were dropped on one side, or on both with different random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import Array, ComparisonBuilder, name_cause_of_output


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_is_reported_with_its_share(values: Array, p: float) -> None:
    kept = np.random.default_rng(4).random(values.shape) >= p
    builder = ComparisonBuilder()
    builder.add("op", (values * kept / (1 - p)).astype(np.float32), values)
    assert builder.cause() == "dropout"


def test_drop_path_takes_whole_examples(values: Array) -> None:
    kept = np.array([1, 0, 1, 1, 0, 1, 1, 1]).reshape(-1, 1, 1, 1)
    builder = ComparisonBuilder()
    builder.add("op", (values * kept / 0.75).astype(np.float32), values)
    assert "drop path" in builder.causes()[0].evidence


def test_different_draws_on_both_sides_are_dropout_too(values: Array) -> None:
    draws = [np.random.default_rng(seed).random(values.shape) >= 0.3 for seed in (1, 2)]
    assert name_cause_of_output(values * draws[0], values * draws[1]) == "dropout"


def test_a_relu_is_not_taken_for_dropout(values: Array) -> None:
    assert name_cause_of_output(np.maximum(values, 0), values) == "missing operator"
