"""Class balancing: an epoch uses images of small classes more often.

A class with n images gets a share of the epoch in proportion to n ** (1 - s), where s is the strength: at strength 0 in
proportion to n, at strength 1 the same share as every other class. The epoch keeps its length N. Each image of the
class is used share * N / n times, rounded down or up by a random draw. The order is a pure function of the labels, the
strength, the seed and the epoch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from viaduct.data.order import Purpose, draw_permutation, draw_words
from viaduct.data.source import Labels

SHOWN_CLASSES = 3  # how many of the smallest classes, and of the largest, a notice describes


def compute_quotas(labels: Labels, strength: float) -> tuple[Labels, Labels, npt.NDArray[np.float64]]:
    """Return the classes, the number of images of each, and how many images of it an epoch is to use (a fraction)."""
    classes, counts = np.unique(labels, return_counts=True)
    weights = counts.astype(np.float64) ** (1 - strength)
    return classes, counts.astype(np.int64), weights * (len(labels) / weights.sum())


def draw_balanced_order(labels: Labels, strength: float, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the index of the image at each position of an epoch."""
    count = len(labels)
    if strength == 0:
        return draw_permutation(seed, epoch, count)
    classes, counts, quotas = compute_quotas(labels, strength)
    draws = draw_words(seed, epoch, Purpose.BALANCE, count + 1)
    by_class = np.lexsort((draws[:count], labels))  # images sorted by class, in random order within a class
    times = (quotas / counts)[np.searchsorted(classes, labels[by_class])]  # how often each is to be used: not whole
    # Systematic sampling: the images are intervals of length `times` on a line, which is shifted by one random draw. An
    # image is used once for each whole number in its interval. So every class is within one of its quota, and the total
    # is `count`.
    ends = np.cumsum(times)
    ends[-1] = count
    shifted = np.floor(ends + float(draws[count] >> np.uint64(11)) * 2.0**-53).astype(np.int64)
    order = np.repeat(by_class, np.diff(np.minimum(shifted, count), prepend=0))
    return order[draw_permutation(seed, epoch, count)]


def describe_balance(labels: Labels, strength: float, names: dict[int, str]) -> str:
    """Describe how many images an epoch uses of the smallest and the largest classes.

    `names` are class names by label; a label without one is shown as a number.
    """
    classes, counts, quotas = (array.tolist() for array in compute_quotas(labels, strength))
    lines = [
        f"{names.get(label, f'class {label}')}: {count:,} → {f'{quota:,.1f}'.removesuffix('.0')} (x{quota / count:.2f})"
        for count, label, quota in sorted(zip(counts, classes, quotas, strict=True))
    ]
    if len(lines) > 2 * SHOWN_CLASSES:
        lines = [*lines[:SHOWN_CLASSES], "…", *lines[-SHOWN_CLASSES:]]
    return f"balance {strength:g}: images of a class → seen in an epoch: {', '.join(lines)}"
