"""The same examples in another order: shuffling left on."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.permutations import describe_order, find_order
from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene

NAME = "shuffle"
ADVICE = (
    "Switch shuffling off on both sides, or fix the order: shuffle=False, one seed for the sampler, no repeat before "
    "shuffle; `viaduct train --deterministic` gives the same order for the same seed on every device."
)


def find_cause(scene: Scene) -> Cause | None:
    both = scene.load_origin()
    if both is None or scene.is_weight:
        return None
    order = find_order(both, 0)
    if order is not None:
        evidence = f"the left side holds the right side's examples in another order: {describe_order(order)}"
        return Cause(NAME, 0.96, evidence, ADVICE)
    if has_same_integers(both):
        return Cause(NAME, 0.8, "both sides hold the same whole numbers, in another order", ADVICE)
    return None


def has_same_integers(both: Both) -> bool:
    """Return True if both sides hold the same integers, in any order."""
    integers = both.left.dtype.kind in "iu" and both.right.dtype.kind in "iu" and both.left.size > 2
    return integers and bool(np.array_equal(np.sort(both.left, axis=None), np.sort(both.right, axis=None)))
