"""Updates with another weight decay."""

from __future__ import annotations

from comparison.comparison_builder import Array, ComparisonBuilder


def add_update(
    builder: ComparisonBuilder, left: Array, right: Array, weight: Array, left_gradient: Array, gradient: Array
) -> None:
    builder.add("fc", weight, weight, "parameter", parameter="weight")
    builder.add("fc", left_gradient, gradient, "gradient", parameter="weight")
    builder.add("fc", left, right, "update", parameter="weight")


def test_updates_that_differ_by_a_multiple_of_the_weight_have_another_weight_decay() -> None:
    builder = ComparisonBuilder()
    weight, gradient = builder.normal(16, 8), builder.normal(16, 8)
    updates = [-0.1 * (gradient + decay * weight) for decay in (1e-4, 5e-4)]
    add_update(builder, *updates, weight, gradient, gradient)
    assert builder.cause(kind="parameter") == "weight decay"


def test_updates_of_different_gradients_or_unrelated_to_the_weight_have_no_other_weight_decay() -> None:
    builder = ComparisonBuilder()
    weight, gradient = builder.normal(16, 8), builder.normal(16, 8)
    add_update(builder, gradient + 1e-3 * builder.normal(16, 8), gradient, weight, gradient, gradient)
    assert builder.cause(kind="parameter") is None
    builder = ComparisonBuilder()
    add_update(builder, gradient + 1e-3 * weight, gradient, weight, gradient + 0.1 * weight, gradient)
    assert builder.cause(kind="parameter") != "weight decay"
