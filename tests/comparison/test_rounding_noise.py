"""A gradient whose terms cancel is rounding; one that is merely small is not."""

from __future__ import annotations

import numpy as np
import pytest

from comparison.comparison_builder import Array, ComparisonBuilder
from viaduct.comparison.records import Row
from viaduct.comparison.rounding_noise import flag_rounding_noise

CHANNELS = 8


def make_bias_story(left: Array | None, right: Array, *, dtype: str = "float32", arriving: bool = True) -> list[Row]:
    """A convolution with these gradients of its bias, which are sums of normal numbers; and updates made of them."""
    builder = ComparisonBuilder()
    terms = builder.normal(4, CHANNELS, 8, 8)
    if arriving:
        builder.add("conv", terms.astype(dtype), terms.astype(dtype), "grad_output")
    builder.add("conv", left, right, "gradient", index=1, parameter="bias")
    builder.add("conv", left, right, "update", index=1, parameter="bias")
    return flag_rounding_noise(builder.rows)[-2:]


def noise(size: float, seed: int) -> Array:
    return (size * np.random.default_rng(seed).standard_normal(CHANNELS)).astype(np.float32)


def results(rows: list[Row]) -> list[str]:
    return [row.result for row in rows]


def test_rounding_on_both_sides_is_a_flag_and_so_is_the_update() -> None:
    rows = make_bias_story(noise(1e-5, 1), noise(1e-5, 2))
    assert results(rows) == ["flag", "flag"]
    assert "256 terms" in rows[0].reason
    assert "computed from a gradient" in rows[1].reason


@pytest.mark.parametrize(("left", "right"), [(1e-5, 16.0), (16.0, 1e-5), (1e-3, 1e-3), (16.0, 16.0)])
def test_what_is_more_than_rounding_on_either_side_stays_bad(left: float, right: float) -> None:
    assert results(make_bias_story(noise(left, 1), noise(right, 2))) == ["bad", "bad"]


def test_true_gradients_do_not_pass_as_rounding_of_half_precision() -> None:
    assert results(make_bias_story(noise(1e-2, 1), noise(1e-2, 2), dtype="float16")) == ["flag", "flag"]
    assert results(make_bias_story(noise(16.0, 1), noise(16.0, 2), dtype="float16")) == ["bad", "bad"]


def test_without_the_incoming_gradient_nothing_is_flagged() -> None:
    assert results(make_bias_story(noise(1e-5, 1), noise(1e-5, 2), arriving=False)) == ["bad", "bad"]


def test_nan_and_missing_gradients_are_not_rounding() -> None:
    broken = noise(1e-5, 1)
    broken[3] = np.nan
    assert results(make_bias_story(broken, noise(1e-5, 2))) == ["bad", "bad"]
    assert results(make_bias_story(None, noise(1e-5, 2)))[0] == "refused"
