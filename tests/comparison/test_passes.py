"""Results of the two passes over a pair of tensors, other than the measures."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.comparison.measures import MEASURES, TOLERANCES, measure

NUMBERS = [name for name in MEASURES.values() if name != "standard_deviation"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def near(values: np.ndarray, by: float = 1e-3) -> np.ndarray:
    return (values + by * normal(*values.shape, seed=1)).astype(values.dtype)


def test_the_number_of_pieces_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    right = normal(5000).astype(np.float32)
    single_pass = measure(near(right), right)
    for module in ("chunks", "passes"):
        monkeypatch.setattr(f"viaduct.comparison.{module}.CHUNK", 64)
    pieces = measure(near(right), right)
    for name in (*NUMBERS, "within"):
        assert getattr(pieces, name) == pytest.approx(getattr(single_pass, name), rel=1e-13)
    assert (pieces.ulps, pieces.top, pieces.histogram) == (single_pass.ulps, single_pass.top, single_pass.histogram)


def test_the_largest_errors_have_their_positions() -> None:
    right = normal(50, 60, 30).astype(np.float32)
    left = near(right)
    error = np.abs(left.astype(float) - right.astype(float)).reshape(-1)
    expected = np.argsort(-error, kind="stable")[:10]
    found = measure(left, right).top
    assert [entry.element.flat for entry in found] == expected.tolist()
    assert found[0].element.index == np.unravel_index(expected[0], right.shape)
    assert found[0].error == error[expected[0]] == abs(found[0].left - found[0].right)


def test_identical_tensors_have_no_largest_errors() -> None:
    values = normal(100)
    found = measure(values, values.copy())
    assert (found.top, found.identical, found.within, found.differing) == ((), True, 1.0, 0)


def test_the_share_within_tolerance_is_relative_to_the_element_or_the_tensors_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = np.array([1000.0, 1.0, 0.0, 1.0])
    left = right + np.array([0.9, 0.2, 0.2, 600.0])
    monkeypatch.setitem(TOLERANCES, "float64", 1e-3)
    assert measure(left, right).within == 0.75  # root mean square 500: 0.5 is allowed everywhere
    monkeypatch.setitem(TOLERANCES, "float64", 1e-5)
    assert measure(left, right).within == 0.0


def test_saturation_and_overflow_are_reported_for_half_precision() -> None:
    left = np.array([65504, -65504, 1, 2], np.float16)
    found = measure(left, left.astype(np.float32))
    assert (found.left.saturated, found.right.saturated, found.overflow) == (2, 2, "YES")
    assert measure(left[2:], left[2:]).overflow == "NO"
    assert measure(left.astype(np.float32), left).overflow == "NaN"
    assert measure(np.array([70000, 1]), np.array([70000, 1])).left.saturated == 0  # integers do not saturate


def test_the_histogram_covers_both_sides() -> None:
    right = normal(1000)
    found = measure(right + 1, right).histogram
    assert found is not None
    assert (found.low, found.high) == (right.min(), right.max() + 1)
    assert sum(found.left) == sum(found.right) == 1000
    expected, _ = np.histogram(right, 40, (found.low, found.high))
    np.testing.assert_allclose(found.right, expected, atol=1)


def test_the_histogram_of_a_large_tensor_is_a_sample() -> None:
    right = normal(500_000).astype(np.float32)
    found = measure(near(right), right).histogram
    assert found is not None
    assert 10_000 < sum(found.left) == sum(found.right) < 20_000


@pytest.mark.parametrize("is_left_huge", [True, False])
def test_equal_pieces_beside_a_huge_element_of_one_side_keep_their_size(
    is_left_huge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("chunks", "passes"):
        monkeypatch.setattr(f"viaduct.comparison.{module}.CHUNK", 64)
    ones, huge = np.ones(256), np.ones(256)
    huge[0] = 1e200
    found = measure(huge, ones) if is_left_huge else measure(ones, huge)
    sides = (found.left, found.right) if is_left_huge else (found.right, found.left)
    assert [side.norm for side in sides] == [pytest.approx(1e200), pytest.approx(16.0)]
    assert found.relative_euclidean > 0.99
