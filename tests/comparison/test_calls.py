"""Rows grouped into calls."""

from __future__ import annotations

import math

import numpy as np
import pytest

from comparison.comparison_builder import ComparisonBuilder
from viaduct.comparison.calls import compute_error, contains_module, divide_by_size, group_by_step
from viaduct.comparison.measures import measure_statistics
from viaduct.comparison.records import Pair, Row, StoredTensor

ONES = np.ones(4, np.float32)


def test_a_module_does_not_contain_itself_or_one_whose_name_only_begins_alike() -> None:
    assert not contains_module("layer1", "layer1")
    assert not contains_module("layer1", "layer10.conv")
    assert contains_module("layer1", "layer1.0.conv")
    assert contains_module("block", "block/unit/conv")
    assert contains_module("network", "layer1"), "the outermost module contains all others"


@pytest.mark.parametrize(("error", "size", "expected"), [(0, 0, 0), (1e-9, 0, math.inf), (1, 4, 0.25)])
def test_an_error_against_zeros_is_infinite(error: float, size: float, expected: float) -> None:
    assert divide_by_size(error, size) == expected


def test_an_error_is_relative_to_the_golden_side_and_infinite_where_nan_differs() -> None:
    builder = ComparisonBuilder()
    assert compute_error(builder.add("a", 3 * ONES, 2 * ONES)) == pytest.approx(0.5)
    assert compute_error(builder.add("a", np.array([np.nan, 1, 1, 1], np.float32), ONES)) == math.inf
    assert compute_error(builder.add("a", None, ONES)) == 0.0


def test_of_statistics_the_largest_error_that_can_be_derived_counts() -> None:
    right = {"min": -1.0, "max": 2.0, "mean": 0.1, "norm": 5.0}
    pair = Pair(0, StoredTensor("a"), StoredTensor("a"), "a", "a", "name")
    measures = measure_statistics({**right, "max": 2.5}, right, "float32", "float32", ((25,), (25,)))
    assert compute_error(Row(pair, measures, "bad")) == pytest.approx(0.5)  # of the root mean square, which is 1


def test_each_step_and_rank_has_its_own_calls_in_execution_order() -> None:
    builder = ComparisonBuilder()
    for step, rank, op, order in [(1, 0, "b", 2), (1, 0, "a", 1), (0, 1, "a", 1), (0, 0, "a", 1)]:
        builder.add(op, ONES, ONES, order=order, step=step, rank=rank)
    builder.add("a", ONES, ONES, "parameter", step=1)
    rank_steps = group_by_step(builder.rows, {})
    assert [(rank_step.number, rank_step.rank) for rank_step in rank_steps] == [(0, 0), (0, 1), (1, 0)]
    assert [call.op for call in rank_steps[2].calls] == ["a", "b"]
    assert rank_steps[2].parameters == (4,), "a parameter belongs to the step, not to a call"


def test_a_call_reads_from_earlier_calls_only() -> None:
    builder = ComparisonBuilder()
    for order, op in enumerate(["first", "second", "third"]):
        builder.add(op, ONES, ONES, order=order)
    (rank_step,) = group_by_step(builder.rows, {"second": ("first", "second", "third", "not dumped")})
    assert [call.op for call in rank_step.list_producing_calls(rank_step.calls[1])] == ["first"]


def test_a_module_holds_the_calls_within_it_at_any_depth() -> None:
    builder = ComparisonBuilder()
    for order, op in enumerate(["block.a.conv", "block.a", "block", "head"]):
        builder.add(op, ONES, ONES, order=order)
    (rank_step,) = group_by_step(builder.rows, {})
    calls = {call.op: [part.op for part in rank_step.list_inner_calls(call)] for call in rank_step.calls}
    assert calls == {"block": ["block.a.conv", "block.a"], "block.a": ["block.a.conv"], "block.a.conv": [], "head": []}
