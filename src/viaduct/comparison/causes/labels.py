"""Labels that are off by one: read from the labels themselves, or from the gradient of the logits.

The gradient of a cross entropy is softmax minus one-hot: in each example its smallest number stands at the label. So
labels can be read off both sides even where only the network was dumped.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene

Array = NDArray[Any]
NAME = "label offset"
LABELS = re.compile("label|target|loss|entropy|criterion", re.IGNORECASE)
OTHER = "different labels"
ADVICE = (
    "Count classes from the same number on both sides: ImageNet records in TensorFlow's form run from 1 to 1000, with "
    "0 for background (1001 classes), PyTorch's from 0 to 999."
)
OTHER_ADVICE = "See that both sides read the same examples in the same order: shuffle off, one seed, one record list."


def look(scene: Scene) -> Cause | None:
    both = scene.bad()
    if both is None:
        return None
    if both.left.dtype.kind in "iu" and both.right.dtype.kind in "iu" and are_labels(scene):
        return judged(
            both.left.ravel().astype(np.int64), both.right.ravel().astype(np.int64), classes(scene), "the labels"
        )
    if both.left.ndim == 2 and both.left.shape[1] > 1 and scene.role in ("grad_output", "grad_input"):
        return of_gradient(both)
    return None


def are_labels(scene: Scene) -> bool:
    """Integers are labels where they go into a loss, or are called so; a counter or an index is none."""
    stored = scene.row.stored
    return stored.role in ("input", "output") and LABELS.search(f"{stored.op} {stored.op_type}") is not None


def classes(scene: Scene) -> int:
    """How many there are, from the logits that enter the same loss; 0 where they are not known."""
    logits = scene.of("input", 0) if scene.role == "input" and scene.row.stored.index else []
    return logits[0].stored.shape[1] if logits and len(logits[0].stored.shape) == 2 else 0


def of_gradient(both: Both) -> Cause | None:
    if not (one_hot_like(both.left) and one_hot_like(both.right)):
        return None
    said = "the labels, read from the gradient of the logits,"
    return judged(both.left.argmin(1), both.right.argmin(1), both.left.shape[1], said)


def one_hot_like(gradient_NK: Array) -> bool:
    """softmax minus one-hot: rows that sum to nothing, with one number below zero in nearly all of them."""
    size = np.abs(gradient_NK).sum(1)
    balanced = np.abs(gradient_NK.sum(1)) <= 1e-2 * size
    return bool(np.isfinite(size).all() and balanced.all() and np.mean((gradient_NK < 0).sum(1) == 1) > 0.9)


def judged(left: Array, right: Array, classes: int, what: str) -> Cause | None:
    """`classes` 0: not known, so labels do not wrap around."""
    offset = left - right
    if not offset.any():
        return None
    wrapped = offset % classes if classes else offset
    if np.all(wrapped == wrapped[0]):
        by = int(wrapped[0]) - classes if classes and wrapped[0] > classes // 2 else int(wrapped[0])
        return Cause(NAME, 0.97, f"{what} are off by {by:+d} in all {len(left)} examples", ADVICE)
    unequal = int(np.count_nonzero(offset))
    return Cause(OTHER, 0.7, f"{what} differ in {unequal} of {len(left)} examples, by no one number", OTHER_ADVICE)
