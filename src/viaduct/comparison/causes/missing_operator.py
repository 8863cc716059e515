"""An operator that does nothing on the left, or that one side lacks.

It is the first operator that is bad (the origin), its ReLU or bias, or an operator just before it.
"""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share
from viaduct.comparison.records import Cause

NAME = "missing operator"
ADVICE = (
    "Compare the two definitions of this part: an operator that one side leaves out, one behind a flag, or a fused "
    "operator that lost its activation or bias."
)
ENOUGH = 0.99  # share of the difference that the missing operator must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None:
        return explain_by_unmatched(divergence)
    if arrays.left.dtype.kind != "f":
        return None
    evidence = describe_unchanged_input(divergence, arrays) or describe_missing_activation(arrays)
    evidence = evidence or describe_missing_bias(divergence, arrays)
    # A norm in evaluation mode whose statistics were never updated does nothing either.
    confidence = 0.8 if "norm" in divergence.op_type.lower() else 0.95
    return Cause(NAME, evidence, ADVICE, confidence=confidence) if evidence else explain_by_unmatched(divergence)


def describe_unchanged_input(divergence: Divergence, arrays: ArrayPair) -> str:
    """Describe an output of the left side that equals its input; empty if it does not."""
    for row in divergence.find_rows("input") if divergence.role == "output" else ():
        source = divergence.load_row(row)
        if source is None or source.left.shape != arrays.left.shape:
            continue
        share = explained_share(source.left, arrays)
        if share > ENOUGH:
            return (
                f"the left side's output is its own {row.tensor_index}, which explains {share:.0%} of the difference: "
                "the operator seems to do nothing"
            )
    return ""


def describe_missing_activation(arrays: ArrayPair) -> str:
    for side, raw, clipped in (("left", arrays.left, arrays.right), ("right", arrays.right, arrays.left)):
        if raw.min() < 0 <= clipped.min() and np.allclose(np.maximum(raw, 0), clipped, rtol=1e-4, atol=1e-6):
            return f"the {side} side lacks a ReLU: with its negative numbers set to 0 both sides agree"
    return ""


def describe_missing_bias(divergence: Divergence, arrays: ArrayPair) -> str:
    channel = -1 if arrays.left.ndim == 2 else 1
    for row in divergence.find_rows("parameter"):
        vector = divergence.load_row(row)
        if arrays.left.ndim > 1 and vector is not None and vector.right.shape == (arrays.left.shape[channel],):
            shape = [1] * arrays.left.ndim
            shape[channel] = -1
            share = explained_share(arrays.right - vector.right.reshape(shape), arrays)
            if np.any(vector.right) and share > ENOUGH:
                without = f"the left side is the right side without {row.tensor_index}"
                return f"{without}, which explains {share:.0%} of the difference"
    return ""


def explain_by_unmatched(divergence: Divergence) -> Cause | None:
    """Report an operator of the right side without a partner, which ran at most two places before the origin there."""
    right_only = [row for row in divergence.step_rows if row.pair.left is None]
    unmatched = [row for row in right_only if 0 <= divergence.right_order - row.tensor.order <= 2]
    if not unmatched:
        return None
    evidence = f"{unmatched[-1].op} of the right side has no partner on the left, just before {divergence.origin.op}"
    return Cause(NAME, evidence, ADVICE, confidence=0.6)
