"""Using small classes more often: an epoch's images, drawn by class.

With n images in a class and a strength s (0 to 1), the class has a share of an epoch in proportion to n ** (1 - s):
n at strength 0, the same for every class at 1, the square root of n at 0.5. An epoch keeps its length N. Each image of
a class is seen share * N / n times, rounded down or up by a draw; so images of a small class are seen again with other
crops, and some images of a large class are not seen in this epoch.

The order is a pure function of (labels, strength, seed, epoch), as without balance: a resumed run sees the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from viaduct.data.order import Purpose, permutation, raw_draws
from viaduct.data.source import Labels

SHOWN_CLASSES = 3  # of the smallest, and of the largest


def class_quotas(labels: Labels, strength: float) -> tuple[Labels, Labels, npt.NDArray[np.float64]]:
    """Return the classes, the number of images of each, and how many of them an epoch uses."""
    classes, counts = np.unique(labels, return_counts=True)
    weights = counts.astype(np.float64) ** (1 - strength)
    return classes, counts.astype(np.int64), weights * (len(labels) / weights.sum())


def balanced_order(labels: Labels, strength: float, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the image at each position of an epoch."""
    count = len(labels)
    if strength == 0:
        return permutation(seed, epoch, count)
    classes, counts, quotas = class_quotas(labels, strength)
    draws = raw_draws(seed, epoch, Purpose.BALANCE, count + 1)
    by_class = np.lexsort((draws[:count], labels))
    times = (quotas / counts)[np.searchsorted(classes, labels[by_class])]
    # Systematic sampling: each image has an interval of length `times` on a line, shifted by one draw, and is seen as
    # often as whole numbers fall into it. So every class comes within one of its quota, and all to exactly `count`.
    ends = np.cumsum(times)
    ends[-1] = count
    shifted = np.floor(ends + float(draws[count] >> np.uint64(11)) * 2.0**-53).astype(np.int64)
    order = np.repeat(by_class, np.diff(np.minimum(shifted, count), prepend=0))
    return order[permutation(seed, epoch, count)]


def describe_balance(labels: Labels, strength: float, names: dict[int, str]) -> str:
    """Describe what an epoch uses of the smallest and of the largest classes."""
    classes, counts, quotas = (array.tolist() for array in class_quotas(labels, strength))
    lines = [
        f"{names.get(label, f'class {label}')}: {count:,} → {f'{quota:,.1f}'.removesuffix('.0')} (x{quota / count:.2f})"
        for count, _, label, quota in sorted(zip(counts, range(len(counts)), classes, quotas, strict=True))
    ]
    if len(lines) > 2 * SHOWN_CLASSES:
        lines = [*lines[:SHOWN_CLASSES], "…", *lines[-SHOWN_CLASSES:]]
    return f"balance {strength:g}: images of a class → seen in an epoch: {', '.join(lines)}"
