"""Labels that are off by one.

The labels are the compared integers themselves, or are read from the gradient of the logits: the gradient of a cross
entropy is softmax minus one-hot, so in each example its smallest number is at the label.
"""

from __future__ import annotations

import re

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence
from viaduct.comparison.records import Array, Cause

NAME = "label offset"
OTHER_NAME = "different labels"  # not all off by the same number
LABEL_OPERATORS = re.compile("label|target|loss|entropy|criterion", re.IGNORECASE)  # in an operator's name or type
ADVICE = (
    "Count classes from the same number on both sides: ImageNet records in TensorFlow's form run from 1 to 1000, with "
    "0 for background (1001 classes), PyTorch's from 0 to 999."
)
OTHER_ADVICE = "Make both sides read the same examples in the same order: shuffle off, one seed, one record list."


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None:
        return None
    if arrays.left.dtype.kind in "iu" and arrays.right.dtype.kind in "iu" and are_labels(divergence):
        left, right = (side.ravel().astype(np.int64) for side in arrays)
        return explain_offset(left, right, count_classes(divergence), "the labels")
    if arrays.left.ndim == 2 and arrays.left.shape[1] > 1 and divergence.role in ("grad_output", "grad_input"):
        return explain_gradient(arrays)
    return None


def are_labels(divergence: Divergence) -> bool:
    """Return True if the integers enter a loss or are named like labels."""
    tensor = divergence.row.tensor
    return tensor.role in ("input", "output") and LABEL_OPERATORS.search(f"{tensor.op} {tensor.op_type}") is not None


def count_classes(divergence: Divergence) -> int:
    """Return the number of classes, from the logits of the same loss; 0 if unknown."""
    logits = divergence.find_rows("input", 0) if divergence.role == "input" and divergence.row.tensor.index else []
    return logits[0].tensor.shape[1] if logits and len(logits[0].tensor.shape) == 2 else 0


def explain_gradient(arrays: ArrayPair) -> Cause | None:
    """Compare the labels read from the gradients of the logits."""
    if not (is_one_hot_gradient(arrays.left) and is_one_hot_gradient(arrays.right)):
        return None
    subject = "the labels, read from the gradient of the logits,"
    return explain_offset(arrays.left.argmin(1), arrays.right.argmin(1), arrays.left.shape[1], subject)


def is_one_hot_gradient(gradient_NK: Array) -> bool:
    """Return True for softmax minus one-hot: rows that sum to about zero, over 90 % of them with one negative value."""
    size = np.abs(gradient_NK).sum(1)
    balanced = np.abs(gradient_NK.sum(1)) <= 1e-2 * size
    return bool(np.isfinite(size).all() and balanced.all() and np.mean((gradient_NK < 0).sum(1) == 1) > 0.9)


def explain_offset(left: Array, right: Array, classes: int, subject: str) -> Cause | None:
    """Report labels that differ, modulo the number of classes if it is known (not 0)."""
    offset = left - right
    if not offset.any():
        return None
    wrapped = offset % classes if classes else offset
    if np.all(wrapped == wrapped[0]):
        by = int(wrapped[0]) - classes if classes and wrapped[0] > classes // 2 else int(wrapped[0])
        return Cause(NAME, f"{subject} are off by {by:+d} in all {len(left)} examples", ADVICE, confidence=0.97)
    evidence = f"{subject} differ in {np.count_nonzero(offset)} of {len(left)} examples, by no common number"
    return Cause(OTHER_NAME, evidence, OTHER_ADVICE, confidence=0.7)
