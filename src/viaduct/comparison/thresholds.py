"""When a pair of tensors counts as equal enough, and the verdict that follows.

The defaults depend on the coarser of the two types. A float32 sum in another order differs by about 1e-6 of its size,
and depth multiplies that by tens; float16 rounds each element by up to 5e-4 and bfloat16 by 4e-3 of its size, and some
fifty operators in a row add up to the limits here. Flags given on the command line replace the defaults as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .measures import EPSILON, Figures, Measures, shown
from .tensors import Result
from .ulps import coarser

Verdict = tuple[Result, str]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A measure without a limit (None) is not judged."""

    cosine: float | None = None  # at least
    euclid: float | None = None  # relative Euclidean distance, at most
    max_abs: float | None = None  # at most, in units of the values
    scaled_max: float | None = None  # at most, in units of the golden side's size (measures.Figures.size)
    differing: float | None = None  # share of integers or truth values that may differ

    def given(self) -> dict[str, float]:
        """The limits that count, by name."""
        limits = {name: getattr(self, name) for name in self.__slots__}
        return {name: limit for name, limit in limits.items() if limit is not None}


DEFAULTS = {
    "bfloat16": Thresholds(cosine=0.995, euclid=0.08, scaled_max=0.8),
    "float16": Thresholds(cosine=0.9999, euclid=0.01, scaled_max=0.1),
    "float32": Thresholds(cosine=0.999999, euclid=1e-4, scaled_max=1e-3),
    "float64": Thresholds(cosine=1 - 1e-12, euclid=1e-9, scaled_max=1e-8),
}
# An index of a maximum, or a mask, may flip where rounding decides: a few among many are a flag.
WHOLE_NUMBERS = Thresholds(differing=0.0)
FLIPPED = 1e-3  # up to this share of differing integers is a flag, above it is bad


def from_flags(cosine: float | None, euclid: float | None, max_abs: float | None) -> Thresholds | None:
    """What the command line asks for; None where it asks for nothing, and the defaults by type hold."""
    if cosine is None and euclid is None and max_abs is None:
        return None
    return Thresholds(cosine=cosine, euclid=euclid, max_abs=max_abs)


def defaults(left: str, right: str) -> Thresholds:
    """The limits for two types; the coarser one decides."""
    left, right = left.removeprefix("complex of "), right.removeprefix("complex of ")
    kind = coarser(left, right)
    if kind is not None:
        return DEFAULTS[kind]
    floats = [dtype for dtype in (left, right) if dtype in DEFAULTS]
    return DEFAULTS[floats[0]] if floats else WHOLE_NUMBERS


def verdict(measures: Measures, thresholds: Thresholds | None = None) -> Verdict:
    """good | bad | flag | refused, and why it is not good. `thresholds` None: the defaults of the pair's types."""
    limits = thresholds or defaults(measures.left.dtype, measures.right.dtype)
    for rule in (mismatched, nothing_compared, one_side_zero):
        if found := rule(measures):
            return found
    judged, reasons = judge(measures, limits)
    if not judged:  # a single element has no cosine: then the defaults decide
        judged, reasons = judge(measures, defaults(measures.left.dtype, measures.right.dtype))
    if not judged:
        return "refused", "no measure of this pair has a threshold"
    if reasons:
        return bad_or_flipped(measures, limits, reasons)
    return remarks(measures)


def mismatched(measures: Measures) -> Verdict | None:
    """NaN or Inf where the other side has something else is bad, whatever the rest looks like."""
    if not measures.mismatched:
        return None
    left, right = measures.left, measures.right
    where = f", first at {list(measures.first_mismatch.index)}" if measures.first_mismatch else ""
    if left.dtype == "float16" and left.inf > right.inf:
        return "bad", f"overflow: the left side has {left.inf} Inf in float16, the right one {right.inf}{where}"
    places = "place" if measures.mismatched == 1 else "places"
    sides = f"left {odd(left)}, right {odd(right)}"
    return "bad", f"NaN or Inf differ in {measures.mismatched} {places}: {sides}{where}"


def odd(side: Figures) -> str:
    """How many NaN and Inf a side has: 3 NaN, 1 +Inf."""
    counts = {"NaN": side.nan, "+Inf": side.plus_inf, "-Inf": side.minus_inf}
    return " and ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def nothing_compared(measures: Measures) -> Verdict | None:
    if measures.compared or measures.statistics_only:
        return None
    return "refused", f"no finite element is left to compare: both sides have {odd(measures.left)}"


def one_side_zero(measures: Measures) -> Verdict | None:
    """Zeros against something have no direction and, on the right, no relative error that could be too large."""
    zero = [side.norm <= EPSILON for side in (measures.left, measures.right)]
    if zero[0] == zero[1] or math.isnan(measures.left.norm) or math.isnan(measures.right.norm):
        return None
    return "bad", f"the {'left' if zero[0] else 'right'} side is all zero, the other is not"


def judge(measures: Measures, limits: Thresholds) -> tuple[int, list[str]]:
    """How many limits apply, and what each of them found. NaN never passes."""
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
            reasons.append(f"{name} {plain(value)} is {'above' if at_most else 'below'} {limit:g}")
    return judged, reasons


def plain(value: float) -> str:
    """A number in a sentence: three digits that mean something, more near 1."""
    if not math.isfinite(value):
        return shown(value)
    return f"{value:.9f}".rstrip("0") if 0.99 < value < 1 else f"{value:.3g}"


def bad_or_flipped(measures: Measures, limits: Thresholds, reasons: list[str]) -> Verdict:
    if limits.differing is not None and measures.differing <= FLIPPED * measures.compared:
        return "flag", f"{measures.differing} of {measures.compared} elements differ"
    if limits.differing is not None:
        return "bad", f"{measures.differing} of {measures.compared} elements differ"
    if measures.overflow == "YES" and not measures.right.saturated:
        reasons = [f"overflow: {measures.left.saturated} values of the left side reach 65504", *reasons]
    return "bad", "; ".join(reasons)


def remarks(measures: Measures) -> Verdict:
    """What is within its limits, but not to be passed over in silence."""
    if measures.paired and measures.statistics_only:
        return "flag", "the statistics of both sides hold NaN or Inf; the finite ones agree"
    if measures.paired:
        found = f"both sides have {odd(measures.right)} in the same places"
        return "flag", f"{found}; the other {measures.compared} elements agree"
    if measures.overflow == "YES":
        return "flag", f"{measures.left.saturated} values reach 65504, the largest float16"
    return "good", ""
