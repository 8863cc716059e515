"""An operator that does nothing, or is not there: the left is its own input, or lacks a ReLU or a bias.

Also told where an operator of the right side has no partner on the left and stands just before the origin.
"""

from __future__ import annotations

import numpy as np

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained

NAME = "missing operator"
ADVICE = (
    "Compare the two definitions at this place: an operator that the rewrite left out, one behind a flag, or a fused "
    "operator that lost its activation or bias."
)
ENOUGH = 0.99


def look(scene: Scene) -> Cause | None:
    both = scene.bad()
    if both is None:
        return without_partner(scene)
    if both.left.dtype.kind != "f":
        return None
    words = unchanged_input(scene, both) or activation(both) or bias(scene, both)
    # A norm in evaluation mode with statistics that were never updated does nothing either.
    confidence = 0.8 if "norm" in scene.op_type.lower() else 0.95
    return Cause(NAME, confidence, words, ADVICE) if words else without_partner(scene)


def unchanged_input(scene: Scene, both: Both) -> str:
    for row in scene.of("input") if scene.role == "output" else ():
        source = scene.both(row)
        if source is not None and source.left.shape == both.left.shape and explained(source.left, both) > ENOUGH:
            return f"the left side's output is its own {row.tensor_index}: the operator does nothing"
    return ""


def activation(both: Both) -> str:
    for side, raw, clipped in (("left", both.left, both.right), ("right", both.right, both.left)):
        if raw.min() < 0 <= clipped.min() and np.allclose(np.maximum(raw, 0), clipped, rtol=1e-4, atol=1e-6):
            return f"the {side} side lacks a ReLU: with its negative numbers set to 0 both sides agree"
    return ""


def bias(scene: Scene, both: Both) -> str:
    """The right side is the left plus a parameter of the operator, one number a channel."""
    channel = -1 if both.left.ndim == 2 else 1
    for row in scene.of("parameter"):
        vector = scene.both(row)
        if both.left.ndim > 1 and vector is not None and vector.right.shape == (both.left.shape[channel],):
            shape = [1] * both.left.ndim
            shape[channel] = -1
            if np.any(vector.right) and explained(both.right - vector.right.reshape(shape), both) > ENOUGH:
                return f"the left side is the right side without {row.tensor_index}"
    return ""


def without_partner(scene: Scene) -> Cause | None:
    order = scene.row.stored.order
    alone = [
        row
        for row in scene.rows
        if row.pair.left is None and row.stored.step == scene.origin.step and 0 <= order - row.stored.order <= 2
    ]
    if not alone:
        return None
    evidence = f"{alone[-1].op} of the right side has no partner on the left, just before {scene.origin.op}"
    return Cause(NAME, 0.6, evidence, ADVICE)
