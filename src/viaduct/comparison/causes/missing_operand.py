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
from viaduct.comparison.scene import Both, Scene, explained_share

Array = NDArray[Any]
NAME = "missing residual add"
ADVICE = (
    "Look at this block's addition: a shortcut that was dropped in the rewrite, an in-place addition on a copy, a "
    "fused operator that lost its second operand, or drop path left on."
)
SAMPLE = 8192
MOST_CANDIDATES = 60
ENOUGH = 0.9


def find_cause(scene: Scene) -> Cause | None:
    """Report a sum that lacks an operand, or has it twice."""
    both = scene.load_origin()
    if (
        both is None
        or both.left.dtype.kind != "f"
        or scene.role not in ("output", "input", "grad_input", "grad_output")
    ):
        return None
    sample = np.random.default_rng(3).integers(0, both.left.size, min(SAMPLE, both.left.size))
    there = Both(both.left.reshape(-1)[sample], both.right.reshape(-1)[sample])
    for row in itertools.islice(scene.iterate_similar(scene.row), MOST_CANDIDATES):
        operand = scene.load_golden(row)
        if operand is not None and operand.shape == both.right.shape:
            words = describe_relation(there, operand.reshape(-1)[sample]) and describe_relation(both, operand)
            if words:
                return Cause(NAME, 0.95, f"the left side is the right side {words} {row.tensor_index}", ADVICE)
    return None


def describe_relation(both: Both, operand: Array) -> str:
    """Return "without" if the operand is missing on the left, "plus another" if it is there twice, else ""."""
    if not np.any(operand):
        return ""
    clipped = bool(np.min(both.right) == 0 == np.min(both.left))
    if fits_left(both, both.right - operand, both.right, clipped):
        return "without"
    return "plus another" if fits_left(both, both.right + operand, both.right, clipped) else ""


def fits_left(both: Both, prediction: Array, seen: Array, clipped: bool) -> bool:
    """Return True if the prediction explains 90 % of the difference, behind a ReLU where it is open."""
    if not clipped:
        return explained_share(prediction, both) > ENOUGH
    open_ = seen > 0
    if open_.mean() < 0.05:
        return False
    return explained_share(np.maximum(prediction[open_], 0), Both(both.left[open_], both.right[open_])) > ENOUGH
