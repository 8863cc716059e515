"""Every row of the table of edge cases: nothing missing, empty, infinite or refused ever counts as good."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from viaduct.comparison.measures import TOLERANCES, Unmeasurable, measure, measure_statistics
from viaduct.comparison.thresholds import (
    DEFAULTS,
    Thresholds,
    default_thresholds,
    judge_measures,
    thresholds_from_flags,
)

LAX = Thresholds(cosine=-1.0, euclid=math.inf, max_abs=math.inf)


def normal(size: int = 1000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def spoil_value(index: int, value: float, dtype: str = "float32") -> np.ndarray:
    values = normal().astype(dtype)
    values[index] = value
    return values


def judge_pair(left: np.ndarray, right: np.ndarray, limits: Thresholds | None = None) -> tuple[str, str]:
    return judge_measures(measure(left, right), limits)


# ------------------------------------------------------------------------------------------------ never good

NEVER_GOOD: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "NaN on the left": lambda: (spoil_value(3, np.nan), normal().astype("f4")),
    "NaN on the right": lambda: (normal().astype("f4"), spoil_value(3, np.nan)),
    "NaN in other places": lambda: (spoil_value(3, np.nan), spoil_value(4, np.nan)),
    "NaN against Inf": lambda: (spoil_value(3, np.nan), spoil_value(3, np.inf)),
    "NaN in the same places": lambda: (spoil_value(3, np.nan), spoil_value(3, np.nan)),
    "Inf in the same places": lambda: (spoil_value(3, np.inf), spoil_value(3, np.inf)),
    "opposite infinities": lambda: (spoil_value(3, np.inf), spoil_value(3, -np.inf)),
    "Inf on the left": lambda: (spoil_value(3, np.inf), normal().astype("f4")),
    "Inf on the right": lambda: (normal().astype("f4"), spoil_value(3, np.inf)),
    "all NaN": lambda: (np.full(5, np.nan), np.full(5, np.nan)),
    "all Inf": lambda: (np.full(5, np.inf), np.full(5, np.inf)),
    "left all zero": lambda: (np.zeros(5), np.ones(5)),
    "right all zero": lambda: (np.ones(5), np.zeros(5)),
    "one element against zero": lambda: (np.ones(1), np.zeros(1)),
    "one NaN": lambda: (np.array(np.nan), np.array(1.0)),
}


@pytest.mark.parametrize("limits", [None, LAX, Thresholds(euclid=1.0), Thresholds(cosine=0.0), Thresholds(max_abs=1e9)])
@pytest.mark.parametrize("case", NEVER_GOOD)
def test_what_is_not_finite_or_zero_on_one_side_is_never_good(case: str, limits: Thresholds | None) -> None:
    result, reason = judge_pair(*NEVER_GOOD[case](), limits)
    assert result != "good"
    assert reason


@pytest.mark.parametrize(
    ("case", "result"),
    [
        ("NaN on the left", "bad"),
        ("NaN on the right", "bad"),
        ("NaN in other places", "bad"),
        ("NaN in the same places", "flag"),
        ("Inf in the same places", "flag"),
        ("opposite infinities", "bad"),
        ("left all zero", "bad"),
        ("right all zero", "bad"),
        ("all NaN", "refused"),
    ],
)
def test_the_result_of_each_edge_case(case: str, result: str) -> None:
    assert judge_pair(*NEVER_GOOD[case]())[0] == result


def test_a_norm_that_counts_as_zero_is_not_called_all_zero() -> None:
    values = np.linspace(1, 2, 8)
    assert judge_pair(0 * values, values) == ("bad", "the left side is all zero, the other is not")
    assert judge_pair(values, 1e-18 * values)[1].startswith("the right side is almost zero (norm 4")


def test_a_flagged_row_is_bad_when_its_finite_rest_is() -> None:
    left, right = spoil_value(3, np.nan), spoil_value(3, np.nan)
    assert judge_pair(left * 2, right)[0] == "bad"


# ------------------------------------------------------------------------------------------------ good


def test_both_all_zero_is_good() -> None:
    assert judge_pair(np.zeros(5), np.zeros(5)) == ("good", "")
    assert judge_pair(np.zeros(1), np.zeros(1)) == ("good", "")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
def test_equal_tensors_are_good(dtype: str) -> None:
    values = (normal() * 3).astype(dtype)
    assert judge_pair(values, values.copy()) == ("good", "")


def test_different_dtypes_alone_are_good() -> None:
    right = normal().astype(np.float32)
    assert judge_pair(right.astype(np.float16), right)[0] == "good"
    bits = (right.view(np.uint32) >> 16).astype(np.uint16)
    assert judge_measures(measure(bits, right, "bfloat16"))[0] == "good"


def test_a_float32_sum_in_another_order_is_good() -> None:
    matrix = normal(512 * 256).reshape(512, 256).astype(np.float32)
    forward, backward = matrix.cumsum(axis=1)[:, -1], matrix[:, ::-1].cumsum(axis=1)[:, -1]
    assert not np.array_equal(forward, backward)
    assert judge_pair(forward, backward)[0] == "good"


def test_large_values_far_from_zero_may_round_by_their_size() -> None:
    right = (1000 + 1e-3 * normal()).astype(np.float32)
    assert judge_pair(np.nextafter(right, np.float32(2000)), right)[0] == "good"


def test_half_precision_hidden_in_float32_is_bad() -> None:
    right = normal().astype(np.float32)
    assert judge_pair(right.astype(np.float16).astype(np.float32), right)[0] == "bad"


# ------------------------------------------------------------------------------------------------ limits


def test_every_default_measure_can_fail_by_itself() -> None:
    right = normal().astype(np.float32)
    changed = right.copy()
    changed[7] += 0.5
    result, reason = judge_pair(changed, right, Thresholds(scaled_max=1e-3))
    assert (result, "size" in reason) == ("bad", True)
    assert judge_pair(right * np.float32(1.1), right, default_thresholds("float32", "float32"))[1].startswith(
        "relative Euclidean"
    )
    assert judge_pair(right[::-1], right)[1].startswith("cosine similarity")


def test_flags_replace_the_defaults_as_a_whole() -> None:
    right = normal().astype(np.float32)
    left = right * np.float32(1.05)
    assert judge_pair(left, right)[0] == "bad"
    assert judge_pair(left, right, thresholds_from_flags(0.99, None, None))[0] == "good"
    assert judge_pair(left, right, thresholds_from_flags(0.99, 0.01, None))[0] == "bad"
    assert judge_pair(left, right, thresholds_from_flags(None, None, 5.0))[0] == "good"
    assert judge_pair(left, right, thresholds_from_flags(None, None, 0.01))[0] == "bad"
    assert thresholds_from_flags(None, None, None) is None


def test_a_limit_itself_is_allowed() -> None:
    left, right = np.array([1.5, 2.0]), np.array([1.0, 2.0])
    assert judge_pair(left, right, Thresholds(max_abs=0.5))[0] == "good"
    assert judge_pair(left, right, Thresholds(max_abs=0.499))[0] == "bad"


def test_a_single_element_under_a_cosine_flag_is_judged_by_the_defaults() -> None:
    assert judge_pair(np.array([2.0]), np.array([1.0]), Thresholds(cosine=0.99))[0] == "bad"
    assert judge_pair(np.array([1.0]), np.array([1.0]), Thresholds(cosine=0.99))[0] == "good"


def test_the_coarser_type_decides() -> None:
    assert default_thresholds("float32", "bfloat16") == default_thresholds("bfloat16", "bfloat16")
    assert default_thresholds("float16", "bfloat16") == default_thresholds("bfloat16", "float32")
    assert default_thresholds("float64", "float32") == default_thresholds("float32", "float32")
    assert default_thresholds("int64", "float16") == default_thresholds("float16", "float16")
    limits = [default_thresholds(kind, kind).euclid or 0.0 for kind in ("float64", "float32", "float16", "bfloat16")]
    assert limits == sorted(limits)


def test_the_documentation_has_the_limits_that_count() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare-measures.md").read_text()
    for dtype, limits in DEFAULTS.items():
        cosine = f"{limits.cosine}" if dtype != "float64" else "1 - 1e-12"
        assert f"| {dtype} | {cosine} | {limits.euclid} | {limits.scaled_max} |" in page
    for dtype, tolerance in TOLERANCES.items():
        assert re.search(
            rf"{re.escape(f'{tolerance:.0e}'.replace('e-0', 'e-'))} for {dtype}", " ".join(page.split())
        ), dtype


# ------------------------------------------------------------------------------------------------ whole numbers


def test_a_label_that_differs_is_bad_and_counted() -> None:
    right = np.arange(100)
    assert judge_pair(right + 1, right) == ("bad", "100 of 100 elements differ")
    left = right.copy()
    left[4] = 7
    assert judge_pair(left, right) == ("bad", "1 of 100 elements differ")


def test_a_few_of_many_indices_that_differ_are_a_flag() -> None:
    right = np.arange(10_000)
    left = right.copy()
    left[:10] += 1
    assert judge_pair(left, right) == ("flag", "10 of 10000 elements differ")
    left[10] += 1
    assert judge_pair(left, right)[0] == "bad"


# ------------------------------------------------------------------------------------------------ overflow


def test_overflow_to_infinity_is_bad_and_named() -> None:
    left, right = spoil_value(3, np.inf, "float16"), spoil_value(3, 70000.0)
    result, reason = judge_pair(left, right)
    assert result == "bad"
    assert reason == "overflow: the left side has 1 Inf in float16, the right one 0, first at [3]"


def test_values_held_at_the_largest_float16_are_named_when_bad() -> None:
    left, right = spoil_value(3, 65504.0, "float16"), spoil_value(3, 60000.0)
    result, reason = judge_pair(left, right)
    assert result == "bad"
    assert reason.startswith("overflow: 1 values of the left side reach 65504")


def test_the_largest_float16_on_both_sides_is_a_flag() -> None:
    assert judge_pair(spoil_value(3, 65504.0, "float16"), spoil_value(3, 65504.0, "float16"))[0] == "flag"


# ------------------------------------------------------------------------------------------------ statistics

STATISTICS = {"min": -3.0, "max": 3.0, "mean": 1e-9, "norm": 31.6, "std": 1.0}


def by_statistics(**changed: float) -> tuple[str, str]:
    sides = ({**STATISTICS, **changed}, STATISTICS)
    return judge_measures(measure_statistics(*sides, "float32", "float32", ((1000,), (1000,))))


def test_a_mean_near_zero_is_not_judged_by_its_own_size() -> None:
    assert by_statistics(mean=-2e-9)[0] == "good"


def test_statistics_that_differ_are_bad() -> None:
    assert by_statistics(max=3.5)[0] == "bad"
    assert by_statistics(norm=40.0)[0] == "bad"


def test_statistics_of_integers_that_differ_do_not_count_as_one_element() -> None:
    """The counted elements are unknown: all 4096 labels may be other ones."""

    def judge_labels(**changed: float) -> tuple[str, str]:
        right = {"min": 0.0, "max": 9.0, "mean": 4.5, "norm": 340.0}
        return judge_measures(measure_statistics({**right, **changed}, right, "int64", "int64", ((4096,), (4096,))))

    result, reason = judge_labels(mean=4.6)
    assert (result, reason.partition(" by ")[0]) == ("bad", "the dumped statistics differ")
    assert judge_labels(mean=4.5 + 1e-7)[0] == "flag"  # one device sums in float32
    assert judge_labels()[0] == "good"


def test_statistics_that_are_not_finite_are_never_good() -> None:
    for changed in ({"max": math.nan}, {"max": math.inf}, {"nan": 1.0}, {"inf": 2.0}, {"norm": math.nan}):
        assert by_statistics(**changed)[0] != "good"


def test_the_same_nan_among_the_statistics_of_both_sides_is_a_flag() -> None:
    both = {**STATISTICS, "norm": math.nan}
    assert judge_measures(measure_statistics(both, both, "float32", "float32", ((9,), (9,))))[0] == "flag"
    with pytest.raises(Unmeasurable, match="no finite statistic"):
        measure_statistics(dict.fromkeys(both, math.nan), dict.fromkeys(both, math.nan))
