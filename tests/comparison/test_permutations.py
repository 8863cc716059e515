"""Tensors with their slices in another order."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.comparison.divergence import ArrayPair
from viaduct.comparison.permutations import describe_order, find_order, match_slices


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
