"""Constants that a compiler computed; each test computes the same numbers with and without folding."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import FOLDING, Array, ComparisonBuilder, convolve, round_to_half, shape_per_channel


def standardise(weight: Array, kind: type) -> Array:
    """Weight standardisation, every operation rounded to a format."""
    values = weight.astype(kind)
    mean = values.mean((1, 2, 3), keepdims=True, dtype=kind)
    spread = np.sqrt(np.square((values - mean).astype(kind)).mean((1, 2, 3), keepdims=True, dtype=kind) + kind(1e-5))
    return np.asarray((values - mean).astype(kind) / spread.astype(kind)).astype(kind)


def make_standardised_story() -> ComparisonBuilder:
    """A convolution with a standardised weight: made as the right runs, in half precision, and once on the left."""
    builder = ComparisonBuilder()
    x, weight = builder.normal(4, 8, 12, 12), builder.normal(16, 8, 3, 3)
    made, folded = standardise(weight, np.float16), standardise(weight, np.float64)
    builder.add("standardise", weight, weight, "parameter", parameter="weight", order=0)
    builder.add("standardise", None, made, order=0)
    builder.add("conv", x, x, "input", order=1, op_type="Conv2d")
    builder.add("conv", convolve(x, folded), convolve(x, made.astype(np.float32)), order=1, op_type="Conv2d")
    return builder


def test_a_weight_computed_by_the_compiler_is_constant_folding() -> None:
    cause = make_standardised_story().causes()[0]
    assert cause.name == FOLDING
    assert "standardise of the right side seems to depend on weights alone" in cause.evidence


def make_scaled_story(add: bool = False) -> ComparisonBuilder:
    """A factor 1 / sqrt(variance) * gamma a channel: three operators in half precision, or one number."""
    builder = ComparisonBuilder()
    x = builder.normal(6, 16, 5, 5)
    gamma, variance = builder.normal(16) + np.float32(3), np.abs(builder.normal(16)) + np.float32(0.5)
    made = round_to_half(round_to_half(1 / round_to_half(np.sqrt(round_to_half(variance)))) * round_to_half(gamma))
    folded = (gamma.astype(np.float64) / np.sqrt(variance)).astype(np.float32)
    builder.add("factor", gamma, gamma, "parameter", parameter="gamma", order=0)
    builder.add("factor", None, made, order=0)
    builder.add("apply", x, x, "input", order=1)
    sides = [x + shape_per_channel(k) if add else x * shape_per_channel(k) for k in (folded, made.astype(np.float32))]
    builder.add("apply", *sides, order=1)
    return builder


@pytest.mark.parametrize("add", [False, True])
def test_a_factor_or_addend_computed_by_the_compiler_is_constant_folding(add: bool) -> None:
    cause = make_scaled_story(add).causes()[0]
    assert cause.name == FOLDING
    assert ("addend" if add else "factor") in cause.evidence


def test_a_constant_is_known_by_its_steps_where_its_inputs_are_not_dumped() -> None:
    builder, made = ComparisonBuilder(), round_to_half(ComparisonBuilder().normal(16) + np.float32(2))
    for step in (0, 1):
        x = builder.normal(6, 16, 5, 5)
        builder.add("factor", None, made, step=step)
        builder.add("apply", x, x, "input", step=step)
        builder.add(
            "apply",
            x * shape_per_channel(made * np.float32(1.0007)),
            x * shape_per_channel(made.astype(np.float32)),
            step=step,
        )
    assert builder.cause() == FOLDING


def test_a_wrong_factor_is_no_constant_folding() -> None:
    builder = make_scaled_story()
    rows = builder.rows
    left = builder.open(rows[-1].pair.left) * np.float32(1.5)  # type: ignore[arg-type]
    right = builder.open(rows[-1].pair.right)  # type: ignore[arg-type]
    builder.rows.pop()
    builder.add("apply", left, right, order=1)
    assert FOLDING not in [cause.name for cause in builder.causes()]
