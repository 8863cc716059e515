"""Sums that were rounded on the way, or added in another order."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.scenes import Array, Layer, Story


def test_sums_rounded_on_the_way_are_a_half_precision_reduction(values: Array) -> None:
    story = Story()
    parts = story.normal(256, 8, 64)
    total = np.zeros((8, 64), np.float16)
    for part in parts:
        total = total + part.astype(np.float16)
    story.tell("sum", parts, parts, "input")
    story.tell("sum", total.astype(np.float32), parts.sum(0))
    assert story.cause() == "half-precision reduction"


def test_float32_sums_in_another_order_are_no_mistake() -> None:
    layer = Layer()
    jitter = 1 + 4e-7 * layer.story.draw.standard_normal(layer.right().shape)
    assert layer.blamed((layer.right().astype(np.float64) * jitter).astype(np.float32)) == "different reduction order"


def test_an_update_is_no_sum_in_half_precision() -> None:
    story = Story()
    update = story.normal(64, 64)
    story.tell("fc", story.normal(64, 64).astype(np.float16), story.normal(64, 64).astype(np.float16), "input")
    story.tell("fc", update * (1 + 0.002 * story.normal(64, 64)), update, "update", parameter="weight")
    assert story.cause(kind="parameter") is None


def test_noise_is_a_half_precision_reduction_only_where_half_precision_is_in_play() -> None:
    found = []
    for kind in ("float32", "float16"):
        story = Story()
        x, weight, y = story.normal(16, 64), story.normal(32, 64), story.normal(16, 32)
        story.tell("fc", weight, weight, "parameter", parameter="weight")
        story.tell("fc", x.astype(kind), x.astype(kind), "input")
        story.tell("fc", y + 2e-3 * story.normal(16, 32), y)
        found.append(story.cause())
    assert found == [None, "half-precision reduction"]


def test_a_weight_is_never_a_reduction() -> None:
    story = Story()
    x, weight = story.normal(16, 64), story.normal(32, 64)
    story.tell("fc", x.astype(np.float16), x.astype(np.float16), "input")
    story.tell("fc", weight + 1e-3 * story.normal(32, 64), weight, "parameter", parameter="weight")
    assert "half-precision reduction" not in [cause.name for cause in story.causes(kind="parameter")]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_finite_on_the_left_only_is_no_other_order(value: float) -> None:
    layer = Layer()
    right = layer.right()
    left = right.copy()
    right[0, 0, 0, 0] = value
    layer.story.tell("conv", left, right, op_type="Conv2d")
    assert "different reduction order" not in [cause.name for cause in layer.story.causes()]
