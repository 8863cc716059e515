"""An operator that does nothing on the left, or that one side lacks: a ReLU, a bias, or one just before the origin.

The origin is the first operator that differs.
"""

from __future__ import annotations

import numpy as np

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained_share

NAME = "missing operator"
ADVICE = (
    "Compare the two definitions of this part: an operator that one side leaves out, one behind a flag, or a fused "
    "operator that lost its activation or bias."
)
ENOUGH = 0.99  # share of the difference that the missing operator must explain


def find_cause(scene: Scene) -> Cause | None:
    both = scene.load_origin()
    if both is None:
        return explain_by_unmatched(scene)
    if both.left.dtype.kind != "f":
        return None
    evidence = describe_unchanged_input(scene, both) or describe_missing_activation(both)
    evidence = evidence or describe_missing_bias(scene, both)
    # A norm in evaluation mode whose statistics were never updated does nothing either.
    confidence = 0.8 if "norm" in scene.op_type.lower() else 0.95
    return Cause(NAME, confidence, evidence, ADVICE) if evidence else explain_by_unmatched(scene)


def describe_unchanged_input(scene: Scene, both: Both) -> str:
    """Describe an output that equals its input; empty if it does not."""
    for row in scene.find_rows("input") if scene.role == "output" else ():
        source = scene.load_row(row)
        if source is not None and source.left.shape == both.left.shape and explained_share(source.left, both) > ENOUGH:
            return f"the left side's output is its own {row.tensor_index}: the operator does nothing"
    return ""


def describe_missing_activation(both: Both) -> str:
    for side, raw, clipped in (("left", both.left, both.right), ("right", both.right, both.left)):
        if raw.min() < 0 <= clipped.min() and np.allclose(np.maximum(raw, 0), clipped, rtol=1e-4, atol=1e-6):
            return f"the {side} side lacks a ReLU: with its negative numbers set to 0 both sides agree"
    return ""


def describe_missing_bias(scene: Scene, both: Both) -> str:
    channel = -1 if both.left.ndim == 2 else 1
    for row in scene.find_rows("parameter"):
        vector = scene.load_row(row)
        if both.left.ndim > 1 and vector is not None and vector.right.shape == (both.left.shape[channel],):
            shape = [1] * both.left.ndim
            shape[channel] = -1
            if np.any(vector.right) and explained_share(both.right - vector.right.reshape(shape), both) > ENOUGH:
                return f"the left side is the right side without {row.tensor_index}"
    return ""


def explain_by_unmatched(scene: Scene) -> Cause | None:
    """Report an operator of the right side without a partner, run at most two places before the origin."""
    order = scene.row.stored.order
    right_only = [row for row in scene.step_rows if row.pair.left is None]
    unmatched = [row for row in right_only if 0 <= order - row.stored.order <= 2]
    if not unmatched:
        return None
    evidence = f"{unmatched[-1].op} of the right side has no partner on the left, just before {scene.origin.op}"
    return Cause(NAME, 0.6, evidence, ADVICE)
