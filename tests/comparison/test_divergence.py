"""Access for causes to the origin's tensors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from comparison.comparison_builder import ComparisonBuilder
from viaduct.comparison import divergence
from viaduct.comparison.divergence import (
    ArrayPair,
    Divergence,
    correlation,
    describe_order,
    explained_share,
    find_order,
    match_slices,
    relative_error,
    rms,
    widen,
)
from viaduct.comparison.records import Origin, StoredTensor
from viaduct.errors import BadData

ONES = np.ones((2, 3), np.float32)


def scene_of(builder: ComparisonBuilder, number: int = -1) -> Divergence:
    number %= len(builder.rows)
    stored = builder.rows[number].tensor
    return Divergence(builder.rows, Origin(stored.op, "operator", stored.step, stored.rank, number, ""), builder.open)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ONES, None),
        (ONES, np.ones((3, 2), np.float32)),
        (np.zeros(0, np.float32), np.zeros(0, np.float32)),
        (ONES.astype(np.complex64), ONES),
    ],
)
def test_a_pair_that_cannot_be_compared_element_by_element_is_none(left: np.ndarray, right: np.ndarray | None) -> None:
    builder = ComparisonBuilder()
    builder.add("op", left, right)
    assert scene_of(builder).load_arrays() is None


def test_a_tensor_that_cannot_be_read_is_none_and_raises_nothing() -> None:
    def refuse(stored: StoredTensor) -> np.ndarray:
        raise BadData("damaged")

    builder = ComparisonBuilder()
    builder.add("op", ONES, ONES)
    divergence = replace(scene_of(builder), open=refuse)
    assert divergence.load_arrays() is None
    assert divergence.load_right(builder.rows[0]) is None


def test_labels_are_not_a_floating_point_origin() -> None:
    builder = ComparisonBuilder()
    builder.add("op", np.arange(3), np.arange(3))
    assert scene_of(builder).load_float_arrays() is None
    assert scene_of(builder).load_arrays() is not None


def test_of_a_large_tensor_whole_leading_slices_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "MAX_ELEMENTS", 10)
    builder = ComparisonBuilder()
    values = builder.normal(5, 4)
    builder.add("op", values + 1, values)
    both = scene_of(builder).load_arrays()
    assert both is not None
    assert np.array_equal(both.right, values[:2].astype(np.float64))
    assert both.left.shape == (2, 4)


def test_rows_of_other_steps_ranks_and_operators_are_not_found() -> None:
    builder = ComparisonBuilder()
    for op, step, rank, index in [("a", 0, 0, 0), ("a", 1, 0, 0), ("a", 0, 1, 0), ("b", 0, 0, 0), ("a", 0, 0, 1)]:
        builder.add(op, ONES, ONES, "input", step=step, rank=rank, index=index)
    divergence = scene_of(builder, 0)
    assert divergence.find_rows("input") == [builder.rows[0], builder.rows[4]]
    assert divergence.find_rows("input", step=1) == [builder.rows[1]]
    assert divergence.find_first_input() is builder.rows[0]
    assert divergence.find_first_input("b") is builder.rows[3]
    assert divergence.find_first_input("c") is None
    assert divergence.step_rows == [builder.rows[0], builder.rows[3], builder.rows[4]]


def test_similar_rows_are_of_the_same_shape_not_bad_and_nearest_first() -> None:
    builder = ComparisonBuilder()
    builder.add("far", ONES, ONES, order=0)
    builder.add("near", ONES, ONES, order=4)
    builder.add("bad", 2 * ONES, ONES, order=5)
    builder.add("flat", ONES.reshape(-1), ONES.reshape(-1), order=5)
    builder.add("origin", 2 * ONES, ONES, order=6)
    assert [row.op for row in scene_of(builder).list_rows_of_same_shape()] == ["near", "far"]


def test_the_weight_is_the_largest_parameter() -> None:
    builder = ComparisonBuilder()
    builder.add("op", ONES[0], ONES[0], "parameter", index=0, parameter="bias")
    builder.add("op", ONES, ONES, "parameter", index=1, parameter="weight")
    assert scene_of(builder).find_weight() is builder.rows[1]


def test_bfloat16_bits_are_widened_and_labels_stay_whole() -> None:
    assert widen(np.array([0x3FC0], np.uint16), "bfloat16").tolist() == [1.5]
    assert widen(np.array([0x3FC0], np.uint16), "uint16").tolist() == [0x3FC0]
    assert widen(np.array([1, 2], np.int64), "int64").dtype == np.int64


@pytest.mark.parametrize(
    ("left", "right", "error"),
    [(0.0, 0.0, 0.0), (1e-9, 0.0, math.inf), (3.0, 2.0, 0.5), (2.0, 2.0, 0.0)],
)
def test_an_error_is_relative_to_the_right_side_and_infinite_against_zeros(
    left: float, right: float, error: float
) -> None:
    assert relative_error(ArrayPair(np.full(4, left), np.full(4, right))) == error


def test_nan_and_inf_do_not_count_in_the_root_mean_square() -> None:
    assert rms(np.array([3.0, np.nan, -3.0, np.inf])) == 3.0
    assert rms(np.array([np.nan])) == math.inf


def test_a_constant_is_not_correlated_with_anything() -> None:
    values = np.random.default_rng(0).standard_normal(100)
    assert correlation(np.ones(100), values) == 0.0
    assert correlation(-2 * values, values) == pytest.approx(-1.0)


def test_a_prediction_explains_the_share_of_the_difference_that_it_removes() -> None:
    right = np.random.default_rng(0).standard_normal(100)
    both = ArrayPair(right + 1.0, right)
    assert explained_share(right, both) == 0.0
    assert explained_share(right - 5.0, both) == 0.0, "worse than no prediction"
    assert explained_share(right + 0.75, both) == pytest.approx(0.75)
    assert explained_share(right, ArrayPair(right, right)) == 0.0, "there is nothing to explain"
    half = np.where(np.arange(100) < 50, np.nan, right + 1.0)
    assert explained_share(half, both) == pytest.approx(1 - 0.5**0.5), "a prediction of NaN explains nothing"
    masks = ArrayPair(np.array([True, False]), np.array([False, False]))
    assert explained_share(np.array([True, False]), masks) == 1.0
    counts = ArrayPair(np.array([1, 2], np.uint8), np.array([2, 2], np.uint8))
    assert explained_share(np.array([1, 2], np.uint8), counts) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_or_inf_on_one_side_is_explained_only_by_a_prediction_of_it(value: float) -> None:
    right = np.random.default_rng(0).standard_normal(100)
    left = right + 1.0
    left[7] = value
    both, prediction = ArrayPair(left, right), right + 1.0
    assert explained_share(prediction, both) == 0.0
    prediction[7] = value
    assert explained_share(prediction, both) == 1.0
    right[7] = value
    assert explained_share(right + 1.0, both) == 1.0, "on both sides it is no difference"


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_unrelated_equal_and_single_slices_have_no_new_order() -> None:
    right = normal(4, 8, 5)
    assert find_order(ArrayPair(normal(4, 8, 5, seed=1), right), 1) is None
    assert find_order(ArrayPair(right, right), 1) is None
    assert find_order(ArrayPair(normal(4, 1, 5, seed=1), normal(4, 1, 5)), 1) is None
    assert find_order(ArrayPair(normal(8), normal(8)), 0) is None, "slices of one element"
    assert find_order(ArrayPair(right[:, ::-1], right), 3) is None, "there is no such axis"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_order_of_the_slices_is_found_in_spite_of_rounding(axis: int) -> None:
    right = normal(6, 7, 8)
    order = np.random.default_rng(3).permutation(right.shape[axis])
    left = np.take(right, order, axis) + 1e-6 * normal(6, 7, 8, seed=1)
    found = find_order(ArrayPair(left, right), axis)
    assert found is not None
    assert found.tolist() == order.tolist()


def test_a_new_order_beside_another_fault_is_not_reported() -> None:
    right = normal(6, 7, 8)
    left = right[:, ::-1] + 0.5 * normal(6, 7, 8, seed=1)
    assert find_order(ArrayPair(left, right), 1) is None


def test_equal_slices_stay_in_their_own_places() -> None:
    right = np.zeros((5, 3))
    right[3], right[4] = 1.0, 2.0
    order = match_slices(right[[0, 1, 2, 4, 3]], right)
    assert order is not None
    assert order.tolist() == [0, 1, 2, 4, 3]


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ([2, 1, 0], "all 3 in reverse"),
        ([0, 3, 2, 1], "1 and 3 exchanged"),
        ([2, 3, 4, 0, 1], "all 5 moved on by 2"),
        ([1, 2, 0, 3, 4], "3 of 5 in other places"),
    ],
)
def test_an_order_is_described_by_what_moves(order: list[int], text: str) -> None:
    assert describe_order(np.array(order)) == text
