from __future__ import annotations

import math
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from viaduct.comparison import chunks
from viaduct.comparison.measures import MEASURES, Measures, Unmeasurable, format_measure, measure, measure_statistics

from . import reference_measures as reference

NUMBERS = [name for name in MEASURES.values() if name != "standard_deviation"]


def check(left: np.ndarray, right: np.ndarray, **options: object) -> Measures:
    """Every number agrees with the definition to 1e-12 of its size."""
    found = measure(left, right, **options)  # type: ignore[arg-type]
    for name, expected in reference.measures(left, right).items():
        value = getattr(found, name)
        if name == "kld" and expected is not None and math.isfinite(expected):
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-12), name
        elif name == "cosine" and expected is not None:
            assert value == pytest.approx(expected, abs=1e-12, nan_ok=True), name
        else:
            assert value == pytest.approx(expected, rel=1e-12, abs=0.0, nan_ok=True), name
    for figures, values in ((found.left, left), (found.right, right)):
        flat = values.astype(np.float64).reshape(-1)
        size = float(np.abs(flat).max())
        assert figures.mean == pytest.approx(reference.mean(flat), abs=1e-12 * size)
        assert figures.std == pytest.approx(reference.deviation(flat), rel=1e-12, abs=1e-15 * size)
        assert figures.norm == pytest.approx(reference.norm(flat), rel=1e-12)
        assert (figures.min, figures.max) == (flat.min(), flat.max())
    return found


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def near(values: np.ndarray, by: float = 1e-3) -> np.ndarray:
    return (values + by * normal(*values.shape, seed=1)).astype(values.dtype)


# ------------------------------------------------------------------------------------------------ accuracy


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [2, 1000, 65536, 70001])
def test_ordinary_values_agree_with_the_definitions(dtype: str, size: int) -> None:
    right = normal(size).astype(dtype)
    check(near(right, 0.01), right)


NASTY = {
    "huge": lambda: normal(500) * 1e300,
    "beyond half the range": lambda: np.where(normal(500) > 0, 1.6e308, -1.7e308) * np.linspace(0.5, 1, 500),
    "subnormal": lambda: normal(500) * 1e-310,
    "tiny": lambda: normal(500) * 1e-200,
    "single's largest": lambda: (normal(500) * 1e38).clip(-3.4e38, 3.4e38).astype(np.float32),
    "single's subnormals": lambda: (normal(500) * 1e-42).astype(np.float32),
    "far from zero": lambda: 1e8 + normal(500),
    "hardly any spread": lambda: 1000 + 1e-9 * normal(500),
    "cancelling": lambda: np.concatenate([normal(250) * 1e12, -normal(250) * 1e12]),
    "one outlier": lambda: np.concatenate([normal(499), [1e200]]),
    "wide range": lambda: 10.0 ** np.random.default_rng(3).uniform(-300, 140, 500),
    "half zeros": lambda: np.maximum(normal(500), 0),
    "constant": lambda: np.full(500, -3.25),
    "alternating": lambda: np.tile([1e16, 1.0, -1e16, 1.0], 125),
}


@pytest.mark.parametrize("kind", NASTY)
def test_extreme_values_agree_with_the_definitions(kind: str) -> None:
    right = NASTY[kind]()
    with np.errstate(all="ignore"):
        left = (right.astype(np.float64) * (1 + 1e-4 * normal(500, seed=2))).astype(right.dtype)
    left = np.where(np.isfinite(left), left, right)
    check(left, right)
    check(right, left)
    check(right, right)


def test_one_huge_value_does_not_hide_small_errors() -> None:
    right = np.concatenate([normal(100), [1e300]])
    left = right + np.concatenate([np.full(100, 1e-10), [0.0]])
    found = measure(left, right)
    assert found.root_mean_square == pytest.approx(reference.measures(left, right)["root_mean_square"], rel=1e-12)


def test_differences_of_the_largest_numbers_do_not_overflow() -> None:
    found = measure(np.array([1.7e308, 1.0]), np.array([-1.7e308, 1.0]))
    assert found.max_absolute == math.inf  # 3.4e308 is no float64
    assert found.max_relative == 2.0
    assert found.cosine == -1.0
    assert found.relative_euclidean == 2.0


def test_cosine_is_capped_at_one() -> None:
    for seed in range(50):
        values = normal(37, seed=seed).astype(np.float32)
        assert measure(values * np.float32(3), values).cosine <= 1.0  # type: ignore[operator]


def test_std_of_a_large_tensor_far_from_zero() -> None:
    values = (1e6 + normal(200_000)).astype(np.float64)
    expected = float(np.std(values - 1e6))
    assert measure(near(values), values).right.std == pytest.approx(expected, rel=1e-9)  # 1e-9: values have 10 digits


# ------------------------------------------------------------------------------------------------ guards


def test_both_all_zero_gives_the_books_values() -> None:
    found = measure(np.zeros(8), np.zeros(8))
    assert (found.cosine, found.max_absolute, found.accumulated_relative, found.relative_euclidean) == (1.0, 0, 0, 0)
    assert math.isnan(found.kld)
    assert measure(np.zeros(8), np.zeros(8), kld="floored").kld == 0.0


def test_left_all_zero() -> None:
    found = measure(np.zeros(8), np.full(8, 2.0))
    assert math.isnan(found.cosine)  # type: ignore[arg-type]
    assert (found.relative_euclidean, found.accumulated_relative) == (1.0, 8.0)


def test_right_all_zero() -> None:
    found = measure(np.full(8, 2.0), np.zeros(8))
    assert math.isnan(found.cosine)  # type: ignore[arg-type]
    assert (found.relative_euclidean, found.accumulated_relative, found.max_absolute) == (0.0, 0.0, 2.0)


def test_elements_whose_golden_value_is_zero_add_nothing_to_the_relative_error() -> None:
    found = measure(np.array([5.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.2e-16]))
    assert (found.accumulated_relative, found.max_relative, found.mean_relative) == (1.0, 1.0, pytest.approx(1 / 3))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_a_single_element_has_no_cosine(shape: tuple[int, ...]) -> None:
    found = measure(np.full(shape, 3.0), np.full(shape, 2.0))
    assert found.cosine is None
    assert (found.max_absolute, found.relative_euclidean) == (1.0, 0.5)
    assert found.columns()["CosineSimilarity"] == ""


# ------------------------------------------------------------------------------------------------ KL divergence


def test_a_zero_on_the_right_only_makes_the_books_divergence_infinite() -> None:
    assert measure(np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.0])).kld == math.inf


def test_minima_at_the_same_index_leave_the_divergence_finite() -> None:
    left, right = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0])
    p, q = left / left.sum(), right / right.sum()
    assert measure(left, right).kld == pytest.approx(float(np.sum(p[1:] * np.log(p[1:] / q[1:]))), rel=1e-14)


@pytest.mark.parametrize("size", [10, 40000])
def test_the_floored_variant_is_always_finite(size: int) -> None:
    left, right = normal(size, seed=5), normal(size, seed=6)
    expected = reference.divergence(left, right, floored=True)
    assert measure(left, right, kld="floored").kld == pytest.approx(expected, rel=1e-12)
    assert measure(left, right).kld == math.inf


def test_constant_sides_keep_their_raw_values() -> None:
    varied = np.array([0.0, 1.0, 2.0, 1.0])
    assert measure(np.full(4, -7.0), np.full(4, 3.0)).kld == 0.0
    assert math.isnan(measure(np.zeros(4), varied).kld)
    assert math.isnan(measure(varied, np.zeros(4)).kld)  # not Inf: all zeros come first
    assert measure(varied, np.full(4, 2.0)).kld == pytest.approx(reference.divergence(varied, np.full(4, 2.0)))


def test_a_divergence_of_almost_nothing_is_zero_and_never_negative() -> None:
    for seed in range(20):
        values = normal(300, seed=seed)
        assert measure(values * (1 + 1e-15), values, kld="floored").kld >= 0.0


# ------------------------------------------------------------------------------------------------ NaN and Inf


def test_nan_in_the_same_places_is_left_out() -> None:
    left, right = near(normal(100)), normal(100)
    remaining = measure(np.delete(left, [3, 50]), np.delete(right, [3, 50]))
    left[[3, 50]] = right[[3, 50]] = np.nan
    found = measure(left, right)
    assert (found.nonfinite_pairs, found.mismatched, found.compared, found.count) == (2, 0, 98, 100)
    assert [getattr(found, name) for name in NUMBERS] == [getattr(remaining, name) for name in NUMBERS]


def test_infinities_of_one_sign_in_the_same_places_are_left_out() -> None:
    left, right = near(normal(10)), normal(10)
    left[2] = right[2] = np.inf
    left[4] = right[4] = -np.inf
    found = measure(left, right)
    assert (found.nonfinite_pairs, found.mismatched) == (2, 0)
    assert (found.left.plus_inf, found.left.minus_inf, found.right.inf) == (1, 1, 2)
    assert math.isfinite(found.max_absolute)


def test_nan_on_one_side_makes_every_measure_nan_and_is_located() -> None:
    left, right = near(normal(4, 50)), normal(4, 50)
    left[2, 7] = left[3, 1] = np.nan
    found = measure(left, right)
    assert all(math.isnan(getattr(found, name)) for name in NUMBERS)
    assert (found.mismatched, found.left.nan, found.right.nan) == (2, 2, 0)
    assert found.first_mismatch is not None
    assert (found.first_mismatch.flat, found.first_mismatch.index) == (107, (2, 7))
    assert [position.index for position in found.left.nonfinite] == [(2, 7), (3, 1)]
    assert found.top  # the finite rest is still described


def test_opposite_infinities_are_a_mismatch_with_infinite_errors() -> None:
    left, right = normal(10), normal(10)
    left[5], right[5] = np.inf, -np.inf
    found = measure(left, right)
    assert (found.mismatched, found.max_absolute, found.relative_euclidean) == (1, math.inf, math.inf)
    assert math.isnan(found.cosine)  # type: ignore[arg-type]


def test_an_infinity_against_a_number_is_a_mismatch() -> None:
    left, right = normal(10).astype(np.float16), normal(10).astype(np.float16)
    left[5] = np.inf
    found = measure(left, right)
    assert (found.mismatched, found.max_absolute, found.overflow) == (1, math.inf, "YES")


def test_nan_against_inf_is_a_mismatch() -> None:
    assert measure(np.array([np.nan, 1.0]), np.array([np.inf, 1.0])).mismatched == 1


def test_nothing_finite_gives_nan_everywhere() -> None:
    found = measure(np.full(5, np.nan), np.full(5, np.nan))
    assert (found.compared, found.nonfinite_pairs) == (0, 5)
    assert all(math.isnan(getattr(found, name)) for name in NUMBERS)


def test_nonfinite_values_in_later_pieces_are_found_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("chunks", "passes"):
        monkeypatch.setattr(f"viaduct.comparison.{module}.CHUNK", 16)
    left = normal(100).astype(np.float32)
    right = left.copy()
    left[70], right[71] = np.nan, -np.inf
    left[90] += 1
    found = measure(left, right)
    assert found.first_mismatch is not None
    assert (found.first_mismatch.flat, found.mismatched) == (70, 2)
    assert found.top[0].element.flat == 90


# ------------------------------------------------------------------------------------------------ types


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_arrives_as_bits() -> None:
    right = normal(3000).astype(np.float32)
    bits = bfloat16_bits(right)
    cut = (bits.astype(np.uint32) << 16).view(np.float32)
    found, plain = measure(bits, right, "bfloat16", "float32"), measure(cut, right)
    assert [getattr(found, name) for name in NUMBERS] == [getattr(plain, name) for name in NUMBERS]
    assert (found.left.dtype, found.tolerance) == ("bfloat16", 8e-3)


def test_equal_bits_of_different_types_are_not_equal() -> None:
    bits = bfloat16_bits(normal(300))
    found = measure(bits, bits, "bfloat16", "uint16")
    assert (found.differing, found.identical) == (300, False)
    assert found.right.mean == pytest.approx(bits.mean())


def test_every_half_precision_number_widens_exactly() -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    out = np.empty(finite.size, np.float32)
    np.testing.assert_array_equal(chunks.convert_half(finite, out), finite.astype(np.float32))
    everything = chunks.convert_half(halves, np.empty(65536, np.float32))
    np.testing.assert_array_equal(everything, halves.astype(np.float32))


def test_truth_values_are_compared_as_numbers_with_a_count() -> None:
    found = measure(np.array([True, False, True, True]), np.array([True, True, True, True]))
    assert (found.differing, found.max_absolute, found.relative_euclidean, found.ulps) == (1, 1.0, 0.5, None)


def test_large_integers_are_subtracted_exactly() -> None:
    left = np.array([2**60 + 1, -(2**63), 5], np.int64)
    right = np.array([2**60, 2**63 - 1, 5], np.int64)
    found = measure(left, right)
    assert (found.differing, found.max_absolute) == (2, float(2**64 - 1))
    assert found.top[1].error == 1.0
    assert measure(left.view(np.uint64), left.view(np.uint64)).identical


@pytest.mark.parametrize(
    ("left", "right", "error"),
    [
        (np.array([2**53 + 1], np.int64), np.array([2**53], np.uint64), 1.0),
        (np.array([-1], np.int64), np.array([2**64 - 1], np.uint64), 2.0**64),
        (np.array([2**63 - 1], np.int64), np.array([2.0**63]), 1.0),
        (np.array([2**64 - 1], np.uint64), np.array([2.0**64]), 1.0),
        (np.array([-(2**53) - 1], np.int64), np.array([-(2.0**53)]), 1.0),
        (np.array([2**60 + 1], np.int64), np.array([2.0**60], np.float32), 1.0),
        (np.array([-1], np.int64), np.array([-1.0000001]), 1.0000001 - 1),
    ],
)
def test_integers_that_float64_rounds_are_not_equal_to_another_type(
    left: np.ndarray, right: np.ndarray, error: float
) -> None:
    for found in (measure(left, right), measure(right, left)):
        assert (found.differing, found.max_absolute, found.identical) == (1, error, False)


def test_equal_integers_of_different_types_are_equal() -> None:
    values = np.array([0, 5, 2**53 + 1, 2**62 + 3, 2**63 - 1])
    assert measure(values, values.astype(np.uint64)).identical
    assert measure(np.array([2**60, -(2**63)]), np.array([2.0**60, -(2.0**63)])).identical


def test_types_may_differ() -> None:
    right = normal(100)
    found = measure(right.astype(np.float16), right.astype(np.float32))
    assert (found.left.dtype, found.right.dtype) == ("float16", "float32")
    assert found.max_absolute < 2e-3


def test_complex_numbers_are_compared_part_by_part() -> None:
    right = normal(6, 5) + 1j * normal(6, 5, seed=1)
    found = measure(right + 0.5j, right)
    assert found.max_absolute == pytest.approx(0.5)
    assert max(position.element.index for position in found.top)[0] < 6
    assert "imaginary" in found.notes[0]


def test_complex_against_real_is_refused() -> None:
    with pytest.raises(Unmeasurable, match="only one side is complex"):
        measure(np.ones(3, complex), np.ones(3))


def test_other_byte_orders_and_memory_orders_change_nothing() -> None:
    right = normal(30, 40).astype(np.float32)
    left = near(right)
    plain = measure(left, right)
    assert measure(left.astype(">f4"), np.asfortranarray(right)) == plain
    assert measure(np.asfortranarray(left), np.repeat(right, 2, axis=1)[:, ::2]) == plain


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.array([1, None], object), np.zeros(2, "V4")])
def test_arrays_that_are_not_numbers_are_refused(array: np.ndarray) -> None:
    with pytest.raises(Unmeasurable, match="cannot be measured"):
        measure(array, array)


def test_an_empty_tensor_is_refused() -> None:
    with pytest.raises(Unmeasurable, match="empty"):
        measure(np.zeros((3, 0)), np.zeros((3, 0)))


def test_other_sizes_are_refused() -> None:
    with pytest.raises(Unmeasurable, match="shapes differ: 3 against 4"):
        measure(np.zeros(3), np.zeros(4))


def test_measures_can_be_pickled() -> None:
    found = measure(near(normal(100)), normal(100))
    assert pickle.loads(pickle.dumps(found)) == found


def test_no_array_is_widened_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, normal(4_000_000).astype(np.float32))
    left, right = np.load(path, mmap_mode="r"), np.load(path, mmap_mode="r")
    right = np.asarray(right)[::-1]
    tracemalloc.start()
    measure(left, right)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000  # half of one side in float64


# ------------------------------------------------------------------------------------------------ as shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.000000"),
        (-1e-9, "0.000000"),
        (-0.0, "0.000000"),
        (-0.5, "-0.500000"),
        (math.nan, "NaN"),
        (math.inf, "Inf"),
        (-math.inf, "-Inf"),
        (None, ""),
        (12345.6789012, "12345.678901"),
    ],
)
def test_numbers_are_shown_with_six_decimals(value: float | None, text: str) -> None:
    assert format_measure(value) == text


def test_the_table_has_ten_columns_and_the_books_text_for_deviations() -> None:
    columns = measure(np.array([1.0, 2.0, 4.5]), np.array([0.0005, -0.0005, 0.0])).columns()
    assert list(columns) == list(MEASURES)
    assert len(columns) == 10
    assert columns["StandardDeviation"] == "(2.500;1.472),(0.000;0.000)"


# ------------------------------------------------------------------------------------------------ statistics only


def test_equal_statistics_have_no_error() -> None:
    numbers = {"min": -1.0, "max": 2.0, "mean": 0.1, "norm": 5.0, "std": 1.0}
    found = measure_statistics(numbers, numbers, "float32", "float32", ((4, 5), (4, 5)))
    assert (found.max_absolute, found.relative_euclidean, found.cosine, found.statistics_only) == (0.0, 0.0, None, True)
    assert not found.identical  # equal statistics prove little


def test_only_the_statistics_that_both_sides_have_are_said_to_be_compared() -> None:
    found = measure_statistics({"min": 0.0, "max": 1.0, "norm": 2.0}, {"max": 1.0, "mean": 0.5, "norm": 2.0})
    assert found.notes == ("only statistics were dumped: max, norm are compared",)


def test_statistics_are_compared_against_the_golden_norm() -> None:
    left = {"min": -1.0, "max": 2.5, "mean": 0.1, "norm": 6.0}
    right = {"min": -1.0, "max": 2.0, "mean": 0.1, "norm": 5.0}
    found = measure_statistics(left, right, "float32", "float32", ((25,), (25,)))
    assert (found.max_absolute, found.relative_euclidean) == (0.5, pytest.approx(0.2))
    assert found.scaled_max == pytest.approx(0.5)  # the root mean square is 1


@pytest.mark.parametrize("right", [2**53, 2.0**53])
def test_statistics_of_integers_that_float64_rounds_differ(right: float) -> None:
    found = measure_statistics({"max": 2**53 + 1}, {"max": right}, "int64", "int64", ((4,), (4,)))
    assert (found.max_absolute, found.differing) == (1.0, 1)


def test_a_nan_among_the_statistics_of_one_side_is_a_mismatch() -> None:
    fine = {"min": -1.0, "max": 2.0, "mean": 0.1, "norm": 5.0}
    found = measure_statistics({**fine, "max": math.nan}, fine)
    assert found.mismatched
    assert measure_statistics({**fine, "nan": 3.0}, fine).mismatched == 3


def test_statistics_without_a_common_name_are_refused() -> None:
    with pytest.raises(Unmeasurable, match="no finite statistic in common"):
        measure_statistics({"min": 1.0}, {"max": 2.0})
