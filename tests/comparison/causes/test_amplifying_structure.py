"""Operators and structures that amplify a difference of their inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from comparison.comparison_builder import AMPLIFYING, Array, ComparisonBuilder, build_norm_comparison


def add_jitter(values: Array, size: float = 3e-7, seed: int = 5) -> Array:
    """The same numbers, a few float32 roundings off."""
    noise = np.random.default_rng(seed).standard_normal(values.shape)
    return (values.astype(np.float64) * (1 + size * noise)).astype(np.float32)


def normalise(x: Array) -> Array:
    exact = x.astype(np.float64)
    return (
        (exact - exact.mean((0, 2, 3), keepdims=True)) / np.sqrt(exact.var((0, 2, 3), keepdims=True) + 1e-12)
    ).astype(np.float32)


def small_variance_story() -> ComparisonBuilder:
    """A norm over channels that hardly vary: it divides by a thousandth."""
    builder = ComparisonBuilder()
    x = (np.float32(5) + np.float32(2e-4) * builder.normal(4, 8, 6, 6)).astype(np.float32)
    builder.add("norm", add_jitter(x), x, "input", op_type="BatchNorm2d")
    builder.add("norm", normalise(add_jitter(x)), normalise(x), op_type="BatchNorm2d")
    return builder


def cancelling_story() -> ComparisonBuilder:
    builder = ComparisonBuilder()
    first = builder.normal(4, 8, 6, 6) + np.float32(10)
    second = (first + np.float32(1e-4) * builder.normal(4, 8, 6, 6)).astype(np.float32)
    lefts = add_jitter(first, seed=1), add_jitter(second, seed=2)
    builder.add("sub", lefts[0], first, "input", index=0)
    builder.add("sub", lefts[1], second, "input", index=1)
    builder.add("sub", lefts[0] - lefts[1], first - second)
    return builder


def curve_story(function: Callable[[Array], Array]) -> ComparisonBuilder:
    builder = ComparisonBuilder()
    x = (np.float32(30) + builder.normal(4, 8, 8, 8)).astype(np.float32)
    left = add_jitter(x, 1e-4)
    builder.add("f", left, x, "input")
    builder.add(
        "f", function(left.astype(np.float64)).astype(np.float32), function(x.astype(np.float64)).astype(np.float32)
    )
    return builder


def layer_story() -> ComparisonBuilder:
    """A linear layer along whose rows the input nearly cancels."""
    builder = ComparisonBuilder()
    x = (builder.normal(64, 32) + np.float32(100)).astype(np.float32)
    weight = builder.normal(16, 32)
    weight -= weight.mean(1, keepdims=True)
    left = add_jitter(x, 1e-4)
    builder.add("fc", weight, weight, "parameter", parameter="weight", op_type="Linear")
    builder.add("fc", left, x, "input", op_type="Linear")
    sides = [(side.astype(np.float64) @ weight.T).astype(np.float32) for side in (left, x)]
    builder.add("fc", *sides, op_type="Linear")
    return builder


AMPLIFIERS: dict[str, Callable[[], ComparisonBuilder]] = {
    "a small variance": small_variance_story,
    "cancellation": cancelling_story,
    "an exponential": lambda: curve_story(lambda x: np.exp(x)),
    "a cancelling layer": layer_story,
}


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_an_operator_that_amplifies_a_difference_of_its_input_is_reported(name: str) -> None:
    cause = AMPLIFIERS[name]().causes()[0]
    assert cause.name == AMPLIFYING
    assert "times as" in cause.evidence


def steep_norm_story() -> ComparisonBuilder:
    """A norm over channels whose mean is far above their deviation; the two sides round that mean differently."""
    builder = ComparisonBuilder()
    x = (np.float32(3) + np.float32(1e-4) * builder.normal(8, 8, 12, 12)).astype(np.float32)
    sides = []
    for mean in (x.sum((0, 2, 3), dtype=np.float32) / np.float32(8 * 144), x.mean((0, 2, 3), dtype=np.float64)):
        centred = x - mean.astype(np.float32).reshape(1, -1, 1, 1) + np.float32(0)
        spread = np.sqrt(x.astype(np.float64).var((0, 2, 3)) + 1e-12).astype(np.float32)
        sides.append(centred / spread.reshape(1, -1, 1, 1))
    sides[0] = sides[0] + np.float32(3 * 2**-22) / np.float32(1e-4)  # four roundings of the mean
    builder.add("norm", x, x, "input", op_type="BatchNorm2d")
    builder.add("norm", *sides, op_type="BatchNorm2d")
    return builder


def test_a_norm_that_amplifies_the_rounding_of_its_mean_is_not_in_another_mode() -> None:
    cause = steep_norm_story().causes()[0]
    assert cause.name == AMPLIFYING
    assert "rounding of a mean" in cause.evidence


@pytest.mark.parametrize(("left", "is_amplifying"), [(1.0, False), (0.0, True)])
def test_an_input_that_is_zero_on_the_right_alone_counts_as_different(left: float, is_amplifying: bool) -> None:
    builder = steep_norm_story()
    zeros = np.zeros(4, np.float32)
    builder.add("norm", zeros + np.float32(left), zeros, "input", index=1, op_type="BatchNorm2d")
    assert (AMPLIFYING in [cause.name for cause in builder.causes(1)]) == is_amplifying


def test_a_constant_output_against_zeros_is_not_explained_by_a_slope_of_zero() -> None:
    builder = ComparisonBuilder()
    x = builder.normal(4, 8, 6, 6)
    builder.add("op", add_jitter(x), x, "input")
    builder.add("op", np.ones_like(x), np.zeros_like(x))
    assert AMPLIFYING not in [cause.name for cause in builder.causes()]


def test_a_norm_in_another_mode_with_large_means_is_still_in_another_mode() -> None:
    builder = ComparisonBuilder()
    x = (np.float32(3) + np.float32(1e-3) * builder.normal(8, 8, 12, 12)).astype(np.float32)
    right = normalise(x)
    builder.add("norm", x, x, "input", op_type="BatchNorm2d")
    builder.add("norm", (x - np.float32(2.9)) / np.float32(0.5), right, op_type="BatchNorm2d")
    assert AMPLIFYING not in [cause.name for cause in builder.causes()]


def test_equal_inputs_are_not_amplified() -> None:
    assert AMPLIFYING not in [cause.name for cause in build_norm_comparison(1e-3, 1e-5).causes()]


def test_a_wrong_operator_with_slightly_different_inputs_is_not_amplifying() -> None:
    builder = ComparisonBuilder()
    x = builder.normal(4, 8, 6, 6)
    builder.add("norm", add_jitter(x), x, "input")
    builder.add("norm", normalise(add_jitter(x)) * np.float32(1.3), normalise(x))
    assert AMPLIFYING not in [cause.name for cause in builder.causes()]


def residual_story(gain: float, depth: int = 40) -> ComparisonBuilder:
    """Blocks x + gain sin(3 x): with a large gain two nearly equal inputs part as fast as they can."""
    builder = ComparisonBuilder()
    right = builder.normal(8, 64)
    left = add_jitter(right)
    builder.add("network", left, right, "input", order=0)
    for number in range(depth):
        before = left, right
        left, right = (side + np.float32(gain) * np.sin(np.float32(3) * side) for side in before)
        left = add_jitter(left, 1e-7, seed=number)
        builder.add(f"block{number:02}", *before, "input", order=number + 1)
        builder.add(f"block{number:02}", left, right, order=number + 1)
    return builder


def test_residual_blocks_that_amplify_from_block_to_block_are_reported() -> None:
    explanation = residual_story(2.0).explain()
    assert explanation.origin is None, "no block does it alone"
    assert explanation.cause == AMPLIFYING
    assert "over" in explanation.causes[0].evidence


def test_rounding_that_only_adds_up_is_not_amplifying() -> None:
    builder = ComparisonBuilder()
    right = builder.normal(8, 64)
    left = right
    builder.add("network", left, right, "input", order=0)
    for number in range(40):
        before = left, right
        left, right = add_jitter(left, 2e-3, seed=number), right
        builder.add(f"block{number:02}", *before, "input", order=number + 1)
        builder.add(f"block{number:02}", left, right, order=number + 1)
    explanation = builder.explain()
    assert explanation.cause != AMPLIFYING
