"""A sum lacks an operand, such as a residual connection, or adds it twice.

The operand is sought among the tensors of the same shape that are not bad. After a ReLU only the elements that are
above zero on the right are compared: there the left must be the right minus the operand, clipped at zero.
"""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share
from viaduct.comparison.records import Array, Cause

NAME = "missing residual add"
ADVICE = (
    "Look at this block's addition: a shortcut that was dropped in the rewrite, an in-place addition on a copy, a "
    "fused operator that lost its second operand, or drop path left on."
)
SAMPLE = 8192  # elements on which an operand is tried before the whole tensor
MAX_CANDIDATES = 60  # tensors that are tried as the operand
ENOUGH = 0.9  # share of the difference that the operand must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None or divergence.is_weight:
        return None
    sample = np.random.default_rng(3).integers(0, arrays.left.size, min(SAMPLE, arrays.left.size))
    sampled = ArrayPair(arrays.left.reshape(-1)[sample], arrays.right.reshape(-1)[sample])
    for row in divergence.list_rows_of_same_shape()[:MAX_CANDIDATES]:
        operand = divergence.load_right(row)
        if operand is not None and operand.shape == arrays.right.shape:
            relation = describe_relation(sampled, operand.reshape(-1)[sample]) and describe_relation(arrays, operand)
            if relation:
                explained = f"explains more than {ENOUGH:.0%} of the difference"
                evidence = f"the left side is the right side {relation} {row.tensor_index}, which {explained}"
                return Cause(NAME, evidence, ADVICE, confidence=0.95)
    return None


def describe_relation(arrays: ArrayPair, operand: Array) -> str:
    """Return "without" if the operand is missing on the left, "plus another" if it is there twice, else ""."""
    if not np.any(operand):
        return ""
    if fits_left(arrays, arrays.right - operand):
        return "without"
    return "plus another" if fits_left(arrays, arrays.right + operand) else ""


def fits_left(arrays: ArrayPair, prediction: Array) -> bool:
    """Return True if the prediction of the left explains the difference; after a ReLU only where the right is not 0."""
    if not np.min(arrays.right) == 0 == np.min(arrays.left):
        return explained_share(prediction, arrays) > ENOUGH
    positive = arrays.right > 0
    if positive.mean() < 0.05:
        return False
    return (
        explained_share(np.maximum(prediction[positive], 0), ArrayPair(*(side[positive] for side in arrays))) > ENOUGH
    )
