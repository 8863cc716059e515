"""Thresholds for a pair of tensors, and the verdict.

The defaults depend on the coarser dtype of the two. A float32 sum in another order differs by about 1e-6 of its size,
and a deep network multiplies that by some tens. float16 rounds each element by up to 5e-4 of its size, bfloat16 by
4e-3, and the limits are what the errors of about fifty consecutive operators add up to. Thresholds on the command line
replace all defaults, except for a pair to which none of them applies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from viaduct.comparison.calls import estimate_error
from viaduct.comparison.measures import Measures, SideStatistics, format_measure
from viaduct.comparison.passes import EPSILON
from viaduct.comparison.records import Result
from viaduct.comparison.ulps import find_coarser_dtype

Verdict = tuple[Result, str]  # and why the result is not good


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the measures; a measure without a limit is not judged."""

    cosine: float | None = None  # at least
    euclid: float | None = None  # relative Euclidean distance, at most
    max_abs: float | None = None  # largest absolute error, at most
    scaled_max: float | None = None  # max_abs relative to the right side's size (SideStatistics.size), at most
    differing: float | None = None  # share of integers or truth values that may differ

    def list_limits(self) -> dict[str, float]:
        limits = {name: getattr(self, name) for name in self.__slots__}
        return {name: limit for name, limit in limits.items() if limit is not None}


DEFAULTS = {
    "bfloat16": Thresholds(cosine=0.995, euclid=0.08, scaled_max=0.8),
    "float16": Thresholds(cosine=0.9999, euclid=0.01, scaled_max=0.1),
    "float32": Thresholds(cosine=0.999999, euclid=1e-4, scaled_max=1e-3),
    "float64": Thresholds(cosine=1 - 1e-12, euclid=1e-9, scaled_max=1e-8),
}
WHOLE_NUMBERS = Thresholds(differing=0.0)
# Because of rounding, a few indices of maxima or elements of a mask may differ: up to this share it is a flag, not bad.
MAX_FLIPPED_SHARE = 1e-3
MAX_STATISTICS_ROUNDING = 1e-6  # relative; a device may sum integers in float32


def thresholds_from_flags(cosine: float | None, euclid: float | None, max_abs: float | None) -> Thresholds | None:
    """Return the thresholds given on the command line; None if there are none."""
    if cosine is None and euclid is None and max_abs is None:
        return None
    return Thresholds(cosine=cosine, euclid=euclid, max_abs=max_abs)


def default_thresholds(left: str, right: str) -> Thresholds:
    """Return the default limits of the coarser of two dtypes."""
    left, right = left.removeprefix("complex of "), right.removeprefix("complex of ")
    kind = find_coarser_dtype(left, right)
    if kind is not None:
        return DEFAULTS[kind]
    floats = [dtype for dtype in (left, right) if dtype in DEFAULTS]
    return DEFAULTS[floats[0]] if floats else WHOLE_NUMBERS


def judge_measures(measures: Measures, thresholds: Thresholds | None = None) -> Verdict:
    """Return the verdict on a pair of tensors. `thresholds` None: defaults by dtype."""
    limits = thresholds or default_thresholds(measures.left.dtype, measures.right.dtype)
    for rule in (judge_nonfinite, judge_empty, judge_zeros):
        if verdict := rule(measures):
            return verdict
    judged, reasons = apply_limits(measures, limits)
    if not judged:  # for example a limit of the cosine only, and a single element, which has none
        judged, reasons = apply_limits(measures, default_thresholds(measures.left.dtype, measures.right.dtype))
    if not judged:
        return "refused", "no measure of this pair has a threshold"
    if reasons:
        return judge_differing(measures, limits, reasons)
    return judge_within_limits(measures)


def judge_nonfinite(measures: Measures) -> Verdict | None:
    """Return bad if NaN or Inf are at different positions."""
    if not measures.mismatched:
        return None
    left, right = measures.left, measures.right
    first = f", first at {list(measures.first_mismatch.index)}" if measures.first_mismatch else ""
    if left.dtype == "float16" and left.inf > right.inf:
        return "bad", f"overflow: the left side has {left.inf} Inf in float16, the right one {right.inf}{first}"
    positions = "place" if measures.mismatched == 1 else "places"
    sides = f"left {count_nonfinite(left)}, right {count_nonfinite(right)}"
    return "bad", f"NaN or Inf differ in {measures.mismatched} {positions}: {sides}{first}"


def count_nonfinite(side: SideStatistics) -> str:
    """Describe how many NaN and Inf a side has: 3 NaN, 1 +Inf."""
    counts = {"NaN": side.nan, "+Inf": side.plus_inf, "-Inf": side.minus_inf}
    return " and ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def judge_empty(measures: Measures) -> Verdict | None:
    """Return refused if no element is finite on both sides."""
    if measures.compared or measures.statistics_only:
        return None
    return "refused", f"no finite element is left to compare: both sides have {count_nonfinite(measures.left)}"


def judge_zeros(measures: Measures) -> Verdict | None:
    """Return bad if exactly one side is zero, or its norm counts as zero: no cosine or relative error would show it."""
    zero = [side.norm <= EPSILON for side in (measures.left, measures.right)]
    if zero[0] == zero[1] or math.isnan(measures.left.norm) or math.isnan(measures.right.norm):
        return None
    name, norm = ("left", measures.left.norm) if zero[0] else ("right", measures.right.norm)
    size = "all zero" if norm == 0.0 else f"almost zero (norm {norm:.2g})"
    return "bad", f"the {name} side is {size}, the other is not"


def apply_limits(measures: Measures, limits: Thresholds) -> tuple[int, list[str]]:
    """Return the number of limits that apply, and a sentence for each that is exceeded. NaN never passes."""
    share = measures.differing / measures.compared if measures.compared else math.nan
    tests = (
        ("cosine similarity", measures.cosine, limits.cosine, False),
        ("relative Euclidean distance", measures.relative_euclidean, limits.euclid, True),
        ("maximum absolute error", measures.max_absolute, limits.max_abs, True),
        ("maximum error in units of the right side's size", measures.scaled_max, limits.scaled_max, True),
        ("share of differing elements", share, limits.differing, True),
    )
    judged, reasons = 0, []
    for name, value, limit, at_most in tests:
        if value is None or limit is None or (measures.statistics_only and math.isnan(value)):
            continue
        judged += 1
        if not (value <= limit if at_most else value >= limit):
            reasons.append(f"{name} {format_number(value)} is {'above' if at_most else 'below'} {limit:g}")
    return judged, reasons


def format_number(value: float) -> str:
    """Format a number with three significant digits, or more near 1."""
    if not math.isfinite(value):
        return format_measure(value)
    return f"{value:.9f}".rstrip("0") if 0.99 < value < 1 else f"{value:.3g}"


def judge_differing(measures: Measures, limits: Thresholds, reasons: list[str]) -> Verdict:
    """Return bad for exceeded limits, or flag for a few differing integers or statistics of integers that may round."""
    if limits.differing is not None and measures.statistics_only:
        error = estimate_error(measures)
        reason = f"the dumped statistics differ by up to {error:.2g} of the right side's size"
        return "flag" if error <= MAX_STATISTICS_ROUNDING else "bad", reason
    if limits.differing is not None:
        result: Result = "flag" if measures.differing <= MAX_FLIPPED_SHARE * measures.compared else "bad"
        return result, f"{measures.differing} of {measures.compared} elements differ"
    if measures.overflow == "YES" and not measures.right.saturated:
        reasons = [f"overflow: {measures.left.saturated} values of the left side reach 65504", *reasons]
    return "bad", "; ".join(reasons)


def judge_within_limits(measures: Measures) -> Verdict:
    """Return good, or a flag for NaN and Inf on both sides or a saturated left side."""
    if measures.nonfinite_pairs and measures.statistics_only:
        return "flag", "the statistics of both sides hold NaN or Inf; the finite ones agree"
    if measures.nonfinite_pairs:
        same = f"both sides have {count_nonfinite(measures.right)} in the same places"
        return "flag", f"{same}; the other {measures.compared} elements agree"
    if measures.overflow == "YES":
        return "flag", f"{measures.left.saturated} values reach 65504, the largest float16"
    return "good", ""
