"""Padding of another size, on another side, or of another kind.

At stride 1 only the border differs, or the whole picture is moved by a cell; at stride 2 everything does, and the layer
is computed again with every padding there could be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.replay import Geometry, Replay, replayed
from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Both, Scene, explained

Array = NDArray[Any]
NAME = "wrong padding"
ADVICE = (
    "Compare the two definitions: TensorFlow's SAME pads (0, 1) where PyTorch's padding=1 pads (1, 1) at stride 2; a "
    "pool may count its padding; reflect and zero padding differ at the border only."
)
REACH = 3  # cells by which a picture may have moved


def look(scene: Scene) -> Cause | None:
    both = scene.bad()
    if both is None or both.left.ndim != 4 or scene.role not in ("output", "input"):
        return None
    replay = replayed(scene)
    found = None if replay is None else by_replay(replay)
    return found or moved(both) or border(both)


def by_replay(replay: Replay) -> Cause | None:
    best, other = max(
        ((replay.explains(replay.predict(geometry=geometry)), geometry) for geometry in others(replay)),
        key=lambda tried: tried[0],
        default=(0.0, replay.geometry),
    )
    if best < 0.8:
        return None
    evidence = (
        f"computed again with {other}, {best:.0%} of the difference is gone; the right side has {replay.geometry}"
    )
    return Cause(NAME, 0.98 * best, evidence, ADVICE)


def others(replay: Replay) -> Iterator[Geometry]:
    """Every other padding of this kernel, and other kinds of edge."""
    kernel_h, kernel_w = replay.weight_OIHW.shape[2:]
    for top in range(kernel_h + 1):
        for left in range(kernel_w + 1):
            if (top, left) != replay.geometry.before:
                yield replace(replay.geometry, before=(top, left))
    if kernel_h * kernel_w > 1:
        for edge in ("reflect", "replicate", "circular"):
            yield replace(replay.geometry, edge=edge)


def moved(both: Both) -> Cause | None:
    """The left picture is the right one moved by a few cells."""
    middle = window(both, 0, 0)
    top, side = margins(both)
    for down in range(-top, top + 1):
        for across in range(-side, side + 1):
            if (down or across) and explained(window(both, down, across).right, middle) > 0.9:
                evidence = (
                    f"away from the border the left side is the right side moved by {down} rows, {across} columns"
                )
                return Cause(NAME, 0.9, evidence, ADVICE)
    return None


def window(both: Both, down: int, across: int) -> Both:
    """The middle of the left picture, and what it would be of the right one moved down and across."""
    (top, side), (height, width) = margins(both), both.left.shape[2:]
    rows, columns = slice(top - down, height - top - down), slice(side - across, width - side - across)
    return Both(both.left[:, :, top : height - top, side : width - side], both.right[:, :, rows, columns])


def margins(both: Both) -> tuple[int, int]:
    height, width = both.left.shape[2:]
    return min(REACH, (height - 1) // 3), min(REACH, (width - 1) // 3)


def border(both: Both) -> Cause | None:
    """Differences along the border only."""
    height, width = both.left.shape[2:]
    worst = np.abs(both.left.astype(np.float64) - both.right).max((0, 1))
    differs = worst > 1e-3 * float(worst.max())
    rows, columns = np.indices((height, width))
    depth = np.minimum.reduce([rows, columns, height - 1 - rows, width - 1 - columns])
    deepest = int(depth[differs].max()) + 1 if differs.any() else 0
    if not deepest or deepest > min(height, width) // 4 or min(height, width) < 4:
        return None
    evidence = f"all differences lie within {deepest} cells of the border of the {height}x{width} picture"
    return Cause(NAME, 0.85, evidence, ADVICE)
