"""Using small classes more often: an epoch's images, drawn by class.

With n images in a class and a strength s (0 to 1), the class has a share of an epoch in proportion to n ** (1 - s):
its natural one at 0, the same for every class at 1, the square root at 0.5. An epoch stays as long as it is, N. Each
image of a class is seen share * N / n times, rounded down or up by a draw; so images of a thin class repeat, with
other crops, and of a large class some wait for another epoch.

The order is a pure function of (labels, strength, seed, epoch), as without balance: a resumed run sees the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from viaduct.data.order import Purpose, permutation, words
from viaduct.data.source import Labels

NAMED_AT_MOST = 3


def class_quotas(labels: Labels, strength: float) -> tuple[Labels, Labels, npt.NDArray[np.float64]]:
    """Return the classes, the images that each has, and how many of them an epoch uses."""
    classes, counts = np.unique(labels, return_counts=True)
    wanted = counts.astype(np.float64) ** (1 - strength)
    return classes, counts.astype(np.int64), wanted * (len(labels) / wanted.sum())


def balanced_order(labels: Labels, strength: float, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the image at each position of an epoch."""
    count = len(labels)
    if strength == 0:
        return permutation(seed, epoch, count)
    classes, counts, quotas = class_quotas(labels, strength)
    draws = words(seed, epoch, Purpose.BALANCE, count + 1)
    by_class = np.lexsort((draws[:count], labels))
    times = (quotas / counts)[np.searchsorted(classes, labels[by_class])]
    # One draw shifts the marks, and an image is seen as often as marks fall into its stretch: so every class comes
    # within one of its quota, and all together to exactly `count`.
    ends = np.cumsum(times)
    ends[-1] = count
    marks = np.floor(ends + float(draws[count] >> np.uint64(11)) * 2.0**-53).astype(np.int64)
    order = np.repeat(by_class, np.diff(np.minimum(marks, count), prepend=0))
    return order[permutation(seed, epoch, count)]


def describe(labels: Labels, strength: float, names: dict[int, str]) -> str:
    """Describe what an epoch uses of the smallest and of the largest classes."""
    classes, counts, quotas = class_quotas(labels, strength)
    order = np.argsort(counts, kind="stable").tolist()
    shown = order if len(order) <= 2 * NAMED_AT_MOST else [*order[:NAMED_AT_MOST], -1, *order[-NAMED_AT_MOST:]]
    parts = ["…" if number < 0 else describe_class(classes, counts, quotas, number, names) for number in shown]
    return f"balance {strength:g}: images of a class → seen in an epoch: {', '.join(parts)}"


def describe_class(
    classes: Labels, counts: Labels, quotas: npt.NDArray[np.float64], number: int, names: dict[int, str]
) -> str:
    """Describe how often the images of one class are used."""
    label, count, quota = int(classes[number]), int(counts[number]), float(quotas[number])
    used = f"{quota:,.1f}".removesuffix(".0")
    return f"{names.get(label, f'class {label}')}: {count:,} → {used} (x{quota / count:.2f})"
