"""Distances in units in the last place."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.comparison.measures import measure


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def near(values: np.ndarray, by: float = 1e-3) -> np.ndarray:
    return (values + by * normal(*values.shape, seed=1)).astype(values.dtype)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_units_in_the_last_place_are_counted_in_doubling_bins() -> None:
    right = np.array([1, 1, 1, 1, -0.0, 1, 1e-45], np.float32)
    steps = np.array([0, 1, 2, 7, 0, -1, 0], np.int32)
    left = (right.view(np.int32) + steps).view(np.float32)
    left[4], left[6] = 0.0, -1e-45
    found = measure(left, right).ulps
    assert found is not None
    assert (found.dtype, found.counts) == ("float32", (2, 2, 2, 1))  # both zeros are equal; ±smallest are 2 apart


@pytest.mark.parametrize(("dtype", "bits"), [("float16", np.int16), ("float32", np.int32), ("float64", np.int64)])
def test_the_units_agree_with_counting_one_by_one(dtype: str, bits: type) -> None:
    right = normal(400).astype(dtype)
    left = near(right, 0.1)

    def number(value: np.ndarray) -> int:
        bits_value = int(value.view(bits))
        return bits_value if bits_value >= 0 else -(bits_value & int(np.iinfo(bits).max))

    expected = [abs(number(a) - number(b)).bit_length() for a, b in zip(left, right, strict=True)]
    found = measure(left, right).ulps
    assert found is not None
    assert list(found.counts) == np.bincount(expected).tolist()


def test_the_units_are_those_of_the_coarser_type() -> None:
    right = np.array([1.0, 1.0, 1.0], np.float32)
    found = measure(np.array([1.0, 1.0009765625, 1.001953125], np.float16), right).ulps
    assert found is not None
    assert (found.dtype, found.counts) == ("float16", (1, 1, 1))
    bits = bfloat16_bits(np.array([1.0, 1.0078125, 1.0], np.float32))
    found = measure(bits, np.array([1.001, 1.0, 1.0], np.float32), "bfloat16").ulps
    assert found is not None
    assert (found.dtype, found.counts) == ("bfloat16", (2, 1))


def test_the_units_of_a_large_tensor_are_a_sample_of_all_of_it() -> None:
    right = np.ones(600_000, np.float32)
    left = right.copy()
    left[458_752:] = np.nextafter(np.float32(1), np.float32(2))
    found = measure(left, right)
    assert found.ulps is not None
    assert found.differing == 141_248  # this is exact
    assert 150_000 < sum(found.ulps.counts) < 300_000
    assert found.ulps.counts[1] / sum(found.ulps.counts) == pytest.approx(0.2354, abs=0.002)
