"""Search for the order of slices along an axis in which one tensor equals the other."""

from __future__ import annotations

import numpy as np

from viaduct.comparison.divergence import ArrayPair, explained_share, flatten_channels
from viaduct.comparison.tensors import Array

MAX_SLICES = 4096  # all pairs of slices are compared
ENOUGH = 0.9  # share of the difference that the new order must explain at least


def find_order(arrays: ArrayPair, axis: int) -> Array | None:
    """Return the order of the right side's slices that explains enough of the difference; None if there is none."""
    count = arrays.left.shape[axis] if axis < arrays.left.ndim else 0
    if not 2 <= count <= MAX_SLICES or arrays.left.size // count < 2:
        return None
    order = match_slices(project_slices(arrays.left, axis), project_slices(arrays.right, axis))
    if order is None or explained_share(np.take(arrays.right, order, axis), arrays) < ENOUGH:
        return None
    return order


def project_slices(values: Array, axis: int) -> Array:
    """Return three numbers for each slice, its products with fixed random vectors: equal slices have equal numbers."""
    slices = flatten_channels(values, axis).astype(np.float64)
    vectors = np.random.default_rng(0).standard_normal((slices.shape[1], 3))
    return np.nan_to_num(slices) @ vectors


def match_slices(left: Array, right: Array) -> Array | None:
    """Return the nearest right slice of each left one; None if two left slices have the same, or if none moved."""
    distance = np.zeros((len(left), len(right)))
    for column in range(left.shape[1]):
        distance += np.abs(left[:, column, None] - right[None, :, column])
    scale = float(np.abs(right).mean()) or 1.0
    distance[np.diag_indices(len(left))] -= 1e-6 * scale  # among equal slices, prefer the one at the same index
    order = distance.argmin(1)
    moves = (order != np.arange(len(order))).any()
    return order if moves and len(np.unique(order)) == len(order) else None


def describe_order(order: Array) -> str:
    moved = np.flatnonzero(order != np.arange(len(order)))
    if np.array_equal(order, np.arange(len(order))[::-1]):
        return f"all {len(order)} in reverse"
    if len(moved) == 2:
        return f"{moved[0]} and {moved[1]} exchanged"
    shift = int(order[0])
    if np.array_equal(order, np.roll(np.arange(len(order)), -shift)):
        return f"all {len(order)} moved on by {shift}"
    return f"{len(moved)} of {len(order)} in other places"
