"""Sums accumulated in half precision, or in another order."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import Array, ComparisonBuilder, Layer


def test_sums_accumulated_in_half_precision_are_a_half_precision_reduction(values: Array) -> None:
    builder = ComparisonBuilder()
    parts = builder.normal(256, 8, 64)
    total = np.zeros((8, 64), np.float16)
    for part in parts:
        total = total + part.astype(np.float16)
    builder.add("sum", parts, parts, "input")
    builder.add("sum", total.astype(np.float32), parts.sum(0))
    assert builder.cause() == "half-precision reduction"


def test_float32_sums_in_another_order_are_no_mistake() -> None:
    layer = Layer()
    jitter = 1 + 4e-7 * layer.builder.draw.standard_normal(layer.right().shape)
    assert (
        layer.find_cause_of((layer.right().astype(np.float64) * jitter).astype(np.float32))
        == "different reduction order"
    )


def test_an_update_is_no_sum_in_half_precision() -> None:
    builder = ComparisonBuilder()
    update = builder.normal(64, 64)
    builder.add("fc", builder.normal(64, 64).astype(np.float16), builder.normal(64, 64).astype(np.float16), "input")
    builder.add("fc", update * (1 + 0.002 * builder.normal(64, 64)), update, "update", parameter="weight")
    assert builder.cause(kind="parameter") is None


def test_noise_is_a_half_precision_reduction_only_in_a_step_with_half_precision() -> None:
    found = []
    for kind in ("float32", "float16"):
        builder = ComparisonBuilder()
        x, weight, y = builder.normal(16, 64), builder.normal(32, 64), builder.normal(16, 32)
        builder.add("fc", weight, weight, "parameter", parameter="weight")
        builder.add("fc", x.astype(kind), x.astype(kind), "input")
        builder.add("fc", y + 2e-3 * builder.normal(16, 32), y)
        found.append(builder.cause())
    assert found == [None, "half-precision reduction"]


def test_a_weight_is_never_a_reduction() -> None:
    builder = ComparisonBuilder()
    x, weight = builder.normal(16, 64), builder.normal(32, 64)
    builder.add("fc", x.astype(np.float16), x.astype(np.float16), "input")
    builder.add("fc", weight + 1e-3 * builder.normal(32, 64), weight, "parameter", parameter="weight")
    assert "half-precision reduction" not in [cause.name for cause in builder.causes(kind="parameter")]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_finite_on_the_left_only_is_no_other_order(value: float) -> None:
    layer = Layer()
    right = layer.right()
    left = right.copy()
    right[0, 0, 0, 0] = value
    layer.builder.add("conv", left, right, op_type="Conv2d")
    assert "different reduction order" not in [cause.name for cause in layer.builder.causes()]
