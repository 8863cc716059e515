"""Dropout on one side or on both: zeros where the other side has numbers, and other values that are equal or scaled.

Dropout with probability p multiplies the values that it keeps by 1 / (1 - p).
"""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share
from viaduct.comparison.records import Array, Cause

NAME = "dropout"
ADVICE = (
    "Switch it off on both sides while comparing: model.eval() for the dropout layers, p = 0, keep_prob = 1, no drop "
    "path; the same seed does not draw the same numbers on two devices."
)


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_float_arrays()
    if arrays is None or divergence.is_weight:
        return None
    return (
        explain_one_side(arrays, "left")
        or explain_one_side(ArrayPair(arrays.right, arrays.left), "right")
        or explain_both_sides(arrays)
    )


def explain_one_side(arrays: ArrayPair, side: str) -> Cause | None:
    """Report zeros in `arrays.left` only, and about one ratio of the other values.

    `side`: the name of the side in `arrays.left`; if it is "right", the caller has swapped the two.
    """
    nonzero = (arrays.right != 0) & np.isfinite(arrays.left) & np.isfinite(arrays.right)  # on the other side
    zeros = nonzero & (arrays.left == 0)
    share = float(zeros.sum() / max(1, nonzero.sum()))
    if not 0.01 < share < 0.99 or nonzero.sum() < 16 or is_relu(arrays.right[zeros], arrays.right[nonzero & ~zeros]):
        return None
    ratio = float(np.median(arrays.left[nonzero & ~zeros] / arrays.right[nonzero & ~zeros]))
    if explained_share(np.where(zeros, 0.0, ratio * arrays.right), arrays) < 0.9:
        return None
    dropped = describe_dropped(zeros, nonzero)
    evidence = (
        f"{share:.0%} of the numbers that are not 0 on the other side are 0 on the {side} ({dropped}), and the others "
        f"are typically {ratio:.4g} times as large; 1 / (1 - p) is {1 / (1 - share):.4g}"
    )
    is_usual = abs(ratio * (1 - share) - 1) < 0.25 or abs(ratio - 1) < 1e-3
    return Cause(NAME, evidence, ADVICE, confidence=0.97 if is_usual else 0.75)


def is_relu(zeroed: Array, others: Array) -> bool:
    """Return True if exactly the values that are negative on the other side are zero, as after a ReLU."""
    return bool((zeroed < 0).all() and (others > 0).all())


def explain_both_sides(arrays: ArrayPair) -> Cause | None:
    """Report zeros at different positions on the two sides, with equal values elsewhere."""
    left, right = arrays.left == 0, arrays.right == 0
    differing, common = left != right, ~left & ~right
    if (
        not 0.02 < differing.mean() < 0.98
        or min((left & ~right).mean(), (right & ~left).mean()) < 0.01
        or common.sum() < 16
    ):
        return None
    if not np.allclose(arrays.left[common], arrays.right[common], rtol=1e-2, atol=0):
        return None
    evidence = f"{differing.mean():.0%} of the values are 0 on one side only, and the sides agree within 1 % elsewhere"
    return Cause(NAME, evidence, ADVICE, confidence=0.9)


def describe_dropped(zeros: Array, nonzero: Array) -> str:
    if zeros.ndim > 1 and drops_whole_slices(zeros, nonzero, tuple(range(1, zeros.ndim))):
        return "whole examples: drop path"
    if zeros.ndim > 2 and drops_whole_slices(zeros, nonzero, tuple(range(2, zeros.ndim))):
        return "whole channels: Dropout2d"
    return "single numbers"


def drops_whole_slices(zeros: Array, nonzero: Array, axes: tuple[int, ...]) -> bool:
    """Return True if every slice over these axes is dropped completely or not at all."""
    return bool(np.all(~zeros.any(axes) | (zeros == nonzero).all(axes)))
