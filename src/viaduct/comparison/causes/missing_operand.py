"""A sum lacks one of its parts: a residual connection that is not added, or one that is added twice.

What is missing is looked for among the tensors of the same shape that both sides agree about. Behind a ReLU only what
is not clipped tells: where the right side is above zero, the left must be the right less the operand, clipped again.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained

Array = NDArray[Any]
NAME = "missing residual add"
ADVICE = (
    "Look at this block's addition: a shortcut that was dropped in the rewrite, an in-place addition on a copy, a "
    "fused operator that lost its second operand, or drop path left on."
)
SAMPLE = 8192
MOST_CANDIDATES = 60
ENOUGH = 0.9


def look(scene: Scene) -> Cause | None:
    both = scene.bad()
    if (
        both is None
        or both.left.dtype.kind != "f"
        or scene.role not in ("output", "input", "grad_input", "grad_output")
    ):
        return None
    sample = np.random.default_rng(3).integers(0, both.left.size, min(SAMPLE, both.left.size))
    there = Both(both.left.reshape(-1)[sample], both.right.reshape(-1)[sample])
    for row in itertools.islice(scene.alike(scene.row), MOST_CANDIDATES):
        operand = scene.golden(row)
        if operand is not None and operand.shape == both.right.shape:
            words = relation(there, operand.reshape(-1)[sample]) and relation(both, operand)
            if words:
                return Cause(NAME, 0.95, f"the left side is the right side {words} {row.tensor_index}", ADVICE)
    return None


def relation(both: Both, operand: Array) -> str:
    """ "without" if the operand is missing on the left, "plus another" if it is there twice, "" if neither."""
    if not np.any(operand):
        return ""
    clipped = bool(np.min(both.right) == 0 == np.min(both.left))
    if works(both, both.right - operand, both.right, clipped):
        return "without"
    return "plus another" if works(both, both.right + operand, both.right, clipped) else ""


def works(both: Both, prediction: Array, seen: Array, clipped: bool) -> bool:
    """Whether the prediction is the left side, where a ReLU behind the sum has not hidden it."""
    if not clipped:
        return explained(prediction, both) > ENOUGH
    open_ = seen > 0
    if open_.mean() < 0.05:
        return False
    return explained(np.maximum(prediction[open_], 0), Both(both.left[open_], both.right[open_])) > ENOUGH
