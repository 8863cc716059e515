"""Thin the points of a line that has more of them than a screen has columns.

Of every stretch of neighbouring points, the lowest, the highest and the first gap (NaN, infinity) are kept, so that
spikes stay visible.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MAX_POINTS = 1500


def choose_points(y: npt.NDArray[np.float64], most: int = MAX_POINTS) -> npt.NDArray[np.intp]:
    """Return the indices of at most `most` points to keep, in order, with both ends."""
    if len(y) <= most:
        return np.arange(len(y))
    kept_per_stretch = 2 if np.isfinite(y).all() else 3
    indices = {0, len(y) - 1}
    for stretch in np.array_split(np.arange(len(y)), most // kept_per_stretch - 1):  # - 1: room for both ends
        finite = np.isfinite(y[stretch])
        values, gaps = stretch[finite], stretch[~finite]
        if values.size:
            indices |= {int(values[np.argmin(y[values])]), int(values[np.argmax(y[values])])}
        indices.update(gaps[:1].tolist())
    return np.array(sorted(indices))
