"""Grids of shorter floating-point formats and of equal steps."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.comparison.grids import BFLOAT16, FLOAT16, FLOAT32, TF32, FloatFormat, find_uniform_grid, is_one_rounding


def normal(size: int = 1000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def test_ordinary_values_lie_on_no_grid() -> None:
    values = normal()
    assert not any(grid.contains_all(values) for grid in (FLOAT16, BFLOAT16, TF32, FLOAT32))
    assert find_uniform_grid(values) is None
    assert not FLOAT16.contains_all(np.array([np.nan, np.inf])), "nothing finite shows no format"


@pytest.mark.parametrize(("grid", "dtype"), [(FLOAT16, np.float16), (FLOAT32, np.float32)])
def test_rounding_is_that_of_the_format(grid: FloatFormat, dtype: type) -> None:
    edges = [0.0, -0.0, 65504.0, 65519.9, 65520.0, -1e6, 2.0**-14, 2.0**-24, 2.0**-25, 3e-8, 1e39, -1e39]
    ties = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-24]
    values = np.array([*edges, *ties, *normal() * 10.0 ** np.linspace(-9, 5, 1000)])
    with np.errstate(over="ignore"):
        expected = values.astype(dtype).astype(np.float64)
    assert np.array_equal(grid.round(values), expected)
    assert grid.contains_all(expected)


def test_a_bfloat16_number_is_also_a_tf32_number_but_not_the_other_way_round() -> None:
    coarse = BFLOAT16.round(normal())
    assert TF32.contains_all(coarse)
    assert not BFLOAT16.contains_all(TF32.round(normal()))


def test_two_roundings_are_not_taken_for_one() -> None:
    right = normal()
    assert is_one_rounding(FLOAT16.round(right), right, FLOAT16)
    two = FLOAT16.round(FLOAT16.round(right) + FLOAT16.spacing(right))
    assert not is_one_rounding(two, right, FLOAT16)
    assert not is_one_rounding(FLOAT16.round(right), FLOAT16.round(right), FLOAT16), "the right side lies on it too"
    assert not is_one_rounding(FLOAT16.round(right[:7]), right[:7], FLOAT16), "too few values to tell"


def test_few_different_values_are_no_grid_of_equal_steps() -> None:
    assert find_uniform_grid(np.array([0.0, 1.0, 2.0, 3.0] * 10)) is None
    assert find_uniform_grid(np.full(100, 3.0)) is None


def test_quantised_values_show_their_step_though_levels_are_missing() -> None:
    step = 0.037
    levels = np.random.default_rng(0).integers(-128, 128, 500)
    stored = (levels * step).astype(np.float32).astype(np.float64)
    uniform = find_uniform_grid(np.append(stored, np.nan))
    assert uniform is not None
    assert uniform.step == pytest.approx(step, rel=1e-5)
    assert uniform.levels == levels.max() - levels.min() + 1
    assert uniform.find_members(stored).all()
    assert not uniform.find_members(stored + step / 2).any()
