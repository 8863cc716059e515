"""Fewer points for the same image: of every stretch of a line, keep its lowest, its highest and its gap.

A screen has some 1500 columns, so a run of 100,000 steps draws the same line from 1500 points; taking every
sixtieth would lose the spikes, which are what people look for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_POINTS = 1500


def thin(y: npt.NDArray[np.float64], most: int = MOST_POINTS) -> npt.NDArray[np.intp]:
    """Return the positions to keep, in order; both ends are always among them."""
    if len(y) <= most:
        return np.arange(len(y))
    kept_per_stretch = 2 if np.isfinite(y).all() else 3
    stretches = np.array_split(np.arange(len(y)), most // kept_per_stretch - 1)
    kept = {0, len(y) - 1}
    for stretch in stretches:
        kept.update(int(position) for position in landmarks(y, stretch))
    return np.array(sorted(kept))


def landmarks(y: npt.NDArray[np.float64], stretch: npt.NDArray[np.intp]) -> list[np.intp]:
    finite = np.isfinite(y[stretch])
    solid, holes = stretch[finite], stretch[~finite]
    extremes = [solid[np.argmin(y[solid])], solid[np.argmax(y[solid])]] if solid.size else []
    return extremes + list(holes[:1])
