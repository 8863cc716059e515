"""Operators that were left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from comparison.comparison_builder import Array, ComparisonBuilder


def test_an_operator_that_returns_its_input_is_missing(values: Array) -> None:
    builder = ComparisonBuilder()
    builder.add("op", values, values, "input")
    builder.add("op", values, np.tanh(values))
    assert builder.cause() == "missing operator"


def test_a_lost_bias_is_a_missing_operator() -> None:
    builder = ComparisonBuilder()
    y, bias = builder.normal(32, 16), builder.normal(16)
    builder.add("fc", bias, bias, "parameter", index=1, parameter="bias")
    builder.add("fc", y, y + bias)
    cause = builder.causes()[0]
    assert cause.name == "missing operator"
    assert "without fc:parameter:1" in cause.evidence


def test_an_unmatched_operator_is_near_the_origin_by_the_order_of_its_own_side() -> None:
    for order_on_right, found in ((1, True), (9, False)):
        builder = ComparisonBuilder()
        values = builder.normal(32, 16)
        builder.add("lost", None, values, order=0)
        row = builder.add("op", np.roll(values, 1), values, order=1)
        assert row.pair.right is not None
        right = replace(row.pair.right, order=order_on_right)
        builder.rows[-1] = replace(row, pair=replace(row.pair, right=right))
        assert any("lost of the right side" in cause.evidence for cause in builder.causes()) is found


def test_an_unmatched_operator_counts_in_the_rank_of_the_origin_alone() -> None:
    for rank, found in ((0, True), (1, False)):
        builder = ComparisonBuilder()
        values, other = builder.normal(32, 16), builder.normal(32, 16)
        builder.add("op", other, other, "input", order=1)
        builder.add("lost", None, values, order=0, rank=rank)
        builder.add("op", np.roll(values, 1), values, order=1)
        assert any("lost of the right side" in cause.evidence for cause in builder.causes()) is found
