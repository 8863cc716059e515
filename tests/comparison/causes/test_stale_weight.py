"""Weights of an earlier step."""

from __future__ import annotations

import numpy as np

from comparison.comparison_builder import ComparisonBuilder


def test_a_weight_of_an_earlier_step_is_stale() -> None:
    builder = ComparisonBuilder()
    old = builder.normal(16, 8)
    new = old + 0.1 * builder.normal(16, 8)
    builder.add("fc", old, old, "parameter", step=0, parameter="weight")
    builder.add("fc", old, new, "parameter", step=1, parameter="weight")
    assert builder.cause(kind="parameter") == "stale weight"


def test_an_update_of_zero_is_a_stale_weight() -> None:
    builder = ComparisonBuilder()
    update = builder.normal(16, 8)
    builder.add("fc", np.zeros_like(update), update, "update", parameter="weight")
    assert builder.cause(kind="parameter") == "stale weight"


def test_a_layer_that_computes_with_an_old_copy_has_a_stale_weight() -> None:
    builder = ComparisonBuilder()
    old, x = builder.normal(16, 8), builder.normal(32, 8)
    new = old + 0.1 * builder.normal(16, 8)
    builder.add("fc", old, old, "parameter", step=0, parameter="weight")
    builder.add("fc", new, new, "parameter", step=1, parameter="weight")
    builder.add("fc", x, x, "input", step=1)
    builder.add("fc", x @ old.T, x @ new.T, step=1)
    assert builder.cause() == "stale weight"
