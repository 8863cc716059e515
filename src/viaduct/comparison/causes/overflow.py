"""A number beyond the range of its format: infinities, NaN computed from them, or values saturated at 65504."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence
from viaduct.comparison.grids import FLOAT16
from viaduct.comparison.records import Cause

NAME = "overflow"
ADVICE = (
    "Keep this operator in float32 (take it out of the mixed-precision list), or scale its input down; for a gradient, "
    "lower the loss scale or let it be dynamic. bfloat16 has float32's range."
)


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None:
        return explain_by_statistics(divergence)
    if arrays.left.dtype.kind != "f":
        return None
    left_only = ~np.isfinite(arrays.left) & np.isfinite(arrays.right)
    infinite, saturated = int(np.isinf(arrays.left[left_only]).sum()), count_saturated(arrays)
    nans = int(np.isnan(arrays.left[left_only]).sum())
    if infinite or saturated:
        return Cause(NAME, describe_overflow(arrays, infinite, nans, saturated), ADVICE, confidence=0.97)
    if nans:
        evidence = f"{nans:,} values are NaN on the left only, without an infinity among them"
        return Cause(NAME, evidence + ": Inf - Inf, 0 * Inf, or an invalid operation inside", ADVICE, confidence=0.5)
    return None


def explain_by_statistics(divergence: Divergence) -> Cause | None:
    """Report more infinities on the left by their counts, if the arrays were not dumped or cannot be loaded."""
    measures = divergence.row.measures
    if measures is None or measures.left.inf <= measures.right.inf:
        return None
    evidence = f"{measures.left.inf:,} values are infinite on the left, {measures.right.inf:,} on the right"
    return Cause(NAME, evidence, ADVICE, confidence=0.9)


def count_saturated(arrays: ArrayPair) -> int:
    """Count left values at float16's largest number with a larger right value."""
    return int(((np.abs(arrays.left) == FLOAT16.largest) & (np.abs(arrays.right) > FLOAT16.largest)).sum())


def describe_overflow(arrays: ArrayPair, infinite: int, nans: int, saturated: int) -> str:
    """Describe how many values overflowed, with the right side's largest magnitude; it has a number at each of them."""
    parts = [f"{infinite:,} values are infinite" if infinite else "", f"{nans:,} are NaN" if nans else ""]
    parts.append(f"{saturated:,} are ±65504, float16's largest number" if saturated else "")
    largest = float(np.nanmax(np.abs(arrays.right)))  # may be inf
    return f"{', '.join(part for part in parts if part)} on the left; the right side's largest is ±{largest:.4g}"
