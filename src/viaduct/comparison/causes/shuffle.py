"""The same examples in another order: shuffling left on."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.permutations import described, order_along
from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene

NAME = "shuffle"
ADVICE = (
    "Switch shuffling off on both sides, or fix the order: shuffle=False, one seed for the sampler, no repeat before "
    "shuffle; `viaduct train --deterministic` gives the same order for the same seed on every device."
)


def look(scene: Scene) -> Cause | None:
    both = scene.bad()
    if both is None or scene.role in ("parameter", "gradient", "update"):
        return None
    order = order_along(both, 0)
    if order is not None:
        return Cause(
            NAME, 0.96, f"the left side holds the right side's examples in another order: {described(order)}", ADVICE
        )
    if same_labels(both):
        return Cause(NAME, 0.8, "both sides hold the same whole numbers, in another order", ADVICE)
    return None


def same_labels(both: Both) -> bool:
    whole = both.left.dtype.kind in "iu" and both.right.dtype.kind in "iu" and both.left.size > 2
    return whole and bool(np.array_equal(np.sort(both.left, axis=None), np.sort(both.right, axis=None)))
