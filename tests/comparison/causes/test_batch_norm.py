"""Batch norms with another epsilon, or in another mode."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import Array, ComparisonBuilder, build_norm_comparison


def test_the_epsilons_of_both_norms_are_solved_for() -> None:
    cause = build_norm_comparison(1e-3, 1e-5).causes()[0]
    assert cause.name == "batch norm epsilon"
    assert "1.0e-03 on the left, 1.0e-05 on the right" in cause.evidence


def test_an_epsilon_is_found_without_the_parameters_too() -> None:
    assert build_norm_comparison(1e-5, 1e-3, gammas=False).cause() == "batch norm epsilon"


def test_running_statistics_are_not_taken_for_gamma_and_beta() -> None:
    builder = build_norm_comparison(1e-3, 1e-5, gammas=False)
    for index, name in enumerate(("running_mean", "running_var")):
        statistics = builder.normal(16) + 4
        builder.add("norm", statistics, statistics, "parameter", index=index, parameter=name, op_type="BatchNorm2d")
    assert builder.cause(place=1) == "batch norm epsilon"


def test_running_against_batch_statistics_is_another_mode() -> None:
    builder = ComparisonBuilder()
    x = builder.normal(8, 16, 6, 6) * np.linspace(0.5, 3, 16, dtype=np.float32)[:, None, None]
    right = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    builder.add("norm", x, x, "input")
    builder.add("norm", x - 0.2, right)
    assert builder.cause() == "batch norm mode"


def test_a_norm_in_evaluation_mode_is_not_taken_for_a_missing_one(values: Array) -> None:
    builder = ComparisonBuilder()
    mean, std = values.mean((0, 2, 3), keepdims=True), values.std((0, 2, 3), keepdims=True)
    builder.add("norm", values, values, "input", op_type="BatchNorm2d")
    builder.add("norm", values, (values - mean) / std, op_type="BatchNorm2d")
    assert builder.cause() == "batch norm mode"


def test_a_norm_with_fresh_running_statistics_is_in_another_mode_and_has_no_huge_epsilon() -> None:
    builder = ComparisonBuilder()
    x = builder.normal(8, 6, 5, 5) * np.linspace(0.24, 0.32, 6, dtype=np.float32)[:, None, None]
    centred = x - x.mean((0, 2, 3), keepdims=True)
    right = centred / np.sqrt(np.square(centred).mean((0, 2, 3), keepdims=True) + 1e-5)
    left = x / np.float32(np.sqrt(1 + 1e-5))
    builder.add("bn", x, x, "input", op_type="BatchNorm2d")
    builder.add("bn", left, right, op_type="BatchNorm2d")
    assert builder.cause() == "batch norm mode"
