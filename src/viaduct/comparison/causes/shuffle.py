"""Examples in another order, as if one side shuffles them."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ENOUGH_BY_ORDER, ArrayPair, Divergence, describe_order, find_order
from viaduct.comparison.records import Cause

NAME = "shuffle"
ADVICE = (
    "Switch shuffling off on both sides, or fix the order: shuffle=False, one seed for the sampler, no repeat before "
    "shuffle; `viaduct train --deterministic` gives the same order for the same seed on every device."
)


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None or divergence.is_weight:
        return None
    order = find_order(arrays, axis=0)  # the axis of the examples
    if order is not None:
        evidence = (
            f"the left side holds the right side's examples in another order ({describe_order(order)}), which explains "
            f"at least {ENOUGH_BY_ORDER:.0%} of the difference"
        )
        return Cause(NAME, evidence, ADVICE, confidence=0.96)
    if has_same_integers(arrays):
        return Cause(NAME, "both sides hold the same whole numbers, in another order", ADVICE, confidence=0.8)
    return None


def has_same_integers(arrays: ArrayPair) -> bool:
    """Return True if both sides hold the same integers in any order, such as labels; two may agree by chance."""
    integers = all(side.dtype.kind in "iu" for side in arrays) and arrays.left.size > 2
    return integers and bool(np.array_equal(np.sort(arrays.left, axis=None), np.sort(arrays.right, axis=None)))
