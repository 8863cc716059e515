"""A number beyond the range of its format: infinities, NaN computed from them, or values saturated at 65504."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.grids import FLOAT16
from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene

NAME = "overflow"
ADVICE = (
    "Keep this operator in float32 (take it out of the mixed-precision list), or scale its input down; for a gradient, "
    "lower the loss scale or let it be dynamic. bfloat16 has float32's range."
)


def find_cause(scene: Scene) -> Cause | None:
    both = scene.load_origin()
    if both is None:
        return explain_by_statistics(scene)
    if both.left.dtype.kind != "f":
        return None
    lost = ~np.isfinite(both.left) & np.isfinite(both.right)
    infinite, saturated = int(np.isinf(both.left[lost]).sum()), count_saturated(both)
    if infinite or saturated:
        return Cause(NAME, 0.97, describe_overflow(both, infinite, int(lost.sum()) - infinite, saturated), ADVICE)
    if lost.any():
        evidence = f"{int(lost.sum()):,} values are NaN on the left only, without an infinity among them"
        return Cause(NAME, 0.5, evidence + ": Inf - Inf, 0 * Inf, or an invalid operation inside", ADVICE)
    return None


def explain_by_statistics(scene: Scene) -> Cause | None:
    """Report overflow from dumped statistics alone."""
    measures = scene.row.measures
    if measures is None or measures.left.inf <= measures.right.inf:
        return None
    evidence = f"{measures.left.inf:,} values are infinite on the left, {measures.right.inf:,} on the right"
    return Cause(NAME, 0.9, evidence, ADVICE)


def count_saturated(both: Both) -> int:
    """Count left values at float16's largest number with a larger right value."""
    return int(((np.abs(both.left) == FLOAT16.largest) & (np.abs(both.right) > FLOAT16.largest)).sum())


def describe_overflow(both: Both, infinite: int, nans: int, saturated: int) -> str:
    """Describe how many values overflowed, with the right side's largest."""
    parts = [f"{infinite:,} values are infinite" if infinite else "", f"{nans:,} are NaN" if nans else ""]
    parts.append(f"{saturated:,} are ±65504, float16's largest number" if saturated else "")
    finite = np.abs(both.right[np.isfinite(both.right)])
    largest = float(finite.max()) if finite.size else 0.0
    return f"{', '.join(part for part in parts if part)} on the left; the right side's largest is {largest:.4g}"
