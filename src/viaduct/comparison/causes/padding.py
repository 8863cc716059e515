"""Padding of another size, on another side, or of another mode.

The layer is recomputed with every other padding. If it cannot be recomputed, there are two signs: the left image is the
right one shifted by a few cells, or only the border differs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from viaduct.comparison.divergence import ArrayPair, Divergence, explained_share
from viaduct.comparison.records import Cause
from viaduct.comparison.replay import Geometry, Replay, replay_origin

NAME = "wrong padding"
ADVICE = (
    "Compare the two definitions: TensorFlow's SAME pads (0, 1) where PyTorch's padding=1 pads (1, 1) at stride 2; a "
    "pool may count its padding; reflect and zero padding differ at the border only."
)
MAX_SHIFT = 3  # cells by which an image may be shifted
ENOUGH = 0.8  # share of the difference that another padding must explain


def find_cause(divergence: Divergence) -> Cause | None:
    arrays = divergence.load_arrays()
    if arrays is None or arrays.left.ndim != 4 or divergence.role not in ("output", "input"):
        return None
    replay = replay_origin(divergence)
    return (explain_by_replay(replay) if replay else None) or explain_shift(arrays) or explain_border(arrays)


def explain_by_replay(replay: Replay) -> Cause | None:
    """Report the padding with which the layer gives the left side's output."""
    geometries = list_geometries(replay)
    shares = [replay.explained_share(replay.predict(geometry=geometry)) for geometry in geometries]
    share = max(shares)
    if share < ENOUGH:
        return None
    best = geometries[shares.index(share)]
    evidence = f"computed again with {best}, {share:.0%} of the difference is gone; the right has {replay.geometry}"
    return Cause(NAME, evidence, ADVICE, confidence=0.98 * share)


def list_geometries(replay: Replay) -> list[Geometry]:
    """Return the geometries with every other padding of this kernel, and those with another mode."""
    kernel_h, kernel_w = replay.weight_OIHW.shape[2:]
    paddings = set(itertools.product(range(kernel_h + 1), range(kernel_w + 1))) - {replay.geometry.padding}
    geometries = [replace(replay.geometry, padding=padding) for padding in sorted(paddings)]
    if kernel_h * kernel_w > 1:
        geometries += [replace(replay.geometry, mode=mode) for mode in ("reflect", "replicate", "circular")]
    return geometries


def explain_shift(arrays: ArrayPair) -> Cause | None:
    """Report a left image that is the right one shifted by a few cells."""
    middle = cut_window(arrays, 0, 0)
    top, side = find_margins(arrays)
    for down in range(-top, top + 1):
        for across in range(-side, side + 1):
            if (down or across) and explained_share(cut_window(arrays, down, across).right, middle) > 0.9:
                evidence = (
                    f"away from the border the left side is the right side moved by {down} rows, {across} columns, "
                    "which explains more than 90% of the difference"
                )
                return Cause(NAME, evidence, ADVICE, confidence=0.9)
    return None


def cut_window(arrays: ArrayPair, down: int, across: int) -> ArrayPair:
    """Return the left image without its margins, and the window of the right one shifted by `down` and `across`."""
    (top, side), (height, width) = find_margins(arrays), arrays.left.shape[2:]
    rows, columns = slice(top - down, height - top - down), slice(side - across, width - side - across)
    return ArrayPair(arrays.left[:, :, top : height - top, side : width - side], arrays.right[:, :, rows, columns])


def find_margins(arrays: ArrayPair) -> tuple[int, int]:
    """Return the number of rows and of columns by which images of this size may be shifted."""
    height, width = arrays.left.shape[2:]
    return min(MAX_SHIFT, (height - 1) // 3), min(MAX_SHIFT, (width - 1) // 3)


def explain_border(arrays: ArrayPair) -> Cause | None:
    """Report differences that lie along the border only, apart from those below a thousandth of the largest."""
    height, width = arrays.left.shape[2:]
    worst = np.abs(arrays.left.astype(np.float64) - arrays.right).max((0, 1))
    differs = worst > 1e-3 * float(worst.max())
    rows, columns = np.indices((height, width))
    depth = np.minimum.reduce([rows, columns, height - 1 - rows, width - 1 - columns])
    deepest = int(depth[differs].max()) + 1 if differs.any() else 0
    if not deepest or deepest > min(height, width) // 4 or min(height, width) < 4:
        return None
    border = f"within {deepest} cells of the border of the {height}x{width} image"
    return Cause(NAME, f"all differences above a thousandth of the largest lie {border}", ADVICE, confidence=0.85)
