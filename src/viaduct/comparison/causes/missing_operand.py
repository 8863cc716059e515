"""A sum lacks an operand, such as a residual connection, or adds it twice.

The operand is searched among the tensors of the same shape that are not bad. After a ReLU only elements above zero on
the right are compared: there the left must be the right minus the operand, clipped at zero again.
"""

from __future__ import annotations

import numpy as np

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained_share
from viaduct.comparison.tensors import Array

NAME = "missing residual add"
ADVICE = (
    "Look at this block's addition: a shortcut that was dropped in the rewrite, an in-place addition on a copy, a "
    "fused operator that lost its second operand, or drop path left on."
)
SAMPLE = 8192  # elements on which an operand is tried before the whole tensor
MAX_CANDIDATES = 60  # tensors that are tried as the operand
ENOUGH = 0.9  # share of the difference that the operand must explain


def find_cause(scene: Scene) -> Cause | None:
    both = scene.load_float_origin()
    if both is None or scene.is_weight:
        return None
    sample = np.random.default_rng(3).integers(0, both.left.size, min(SAMPLE, both.left.size))
    sampled = Both(both.left.reshape(-1)[sample], both.right.reshape(-1)[sample])
    for row in scene.find_similar()[:MAX_CANDIDATES]:
        operand = scene.load_golden(row)
        if operand is not None and operand.shape == both.right.shape:
            relation = describe_relation(sampled, operand.reshape(-1)[sample]) and describe_relation(both, operand)
            if relation:
                return Cause(NAME, 0.95, f"the left side is the right side {relation} {row.tensor_index}", ADVICE)
    return None


def describe_relation(both: Both, operand: Array) -> str:
    """Return "without" if the operand is missing on the left, "plus another" if it is there twice, else ""."""
    if not np.any(operand):
        return ""
    if fits_left(both, both.right - operand):
        return "without"
    return "plus another" if fits_left(both, both.right + operand) else ""


def fits_left(both: Both, prediction: Array) -> bool:
    """Return True if the prediction explains the difference; after a ReLU only where the right is above zero."""
    if not np.min(both.right) == 0 == np.min(both.left):
        return explained_share(prediction, both) > ENOUGH
    positive = both.right > 0
    if positive.mean() < 0.05:
        return False
    return explained_share(np.maximum(prediction[positive], 0), Both(*(side[positive] for side in both))) > ENOUGH
