"""Distances in units in the last place, counted in bins that double.

Bin 0 holds equal elements, bin k those between 2^(k-1) and 2^k - 1 units in the last place apart. Where the two sides
have different types both are rounded to the coarser one first: its unit is what can be asked for. Of a tensor with more
than a quarter of a million elements a part is counted, the same share of every stretch of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .chunks import FLOATS, Array, Floats, Piece, buffer

# mantissa bits decide which type is coarser; bfloat16 is coarser than float16
_COARSEST_FIRST = ("bfloat16", "float16", "float32", "float64")
_WORDS = {"bfloat16": np.int16, "float16": np.int16, "float32": np.int32, "float64": np.int64}
BINS = 66
SAMPLE = 1 << 18
_ONE = 1023  # the biased exponent of 1.0


@dataclass(frozen=True, slots=True)
class Ulps:
    """counts[0]: equal; counts[k]: 2^(k-1) … 2^k - 1 units of `dtype` apart. Trailing empty bins are left away.

    The counts of a large tensor do not add up to its size: they are a sample.
    """

    dtype: str
    counts: tuple[int, ...]


def coarser_dtype(left: str, right: str) -> str | None:
    """Return the coarser of two floating-point dtypes; None where one is no float."""
    if left not in FLOATS or right not in FLOATS:
        return None
    return min(left, right, key=_COARSEST_FIRST.index)


class UlpCount:
    """The histogram, added up piece by piece."""

    def __init__(self, left: str, right: str, count: int) -> None:
        self.dtype = coarser_dtype(left, right)
        self.types = (left, right)
        self.counts = np.zeros(BINS, np.int64)
        self._part = -(-count // SAMPLE)  # one in so many is counted

    def add(self, left: Piece, right: Piece) -> None:
        """Add a piece."""
        if self.dtype is None:
            return
        size = self._share(left.raw.size)
        left, right = left.first(size), right.first(size)
        ours, theirs, spare = (buffer(name, size, _WORDS[self.dtype]) for name in ("ours", "theirs", "spare"))
        order_words(read_words(left, self.types[0], self.dtype), ours, spare)
        order_words(read_words(right, self.types[1], self.dtype), theirs, spare)
        exponents = self._distance(ours, theirs).view(np.int64)
        np.right_shift(exponents, 52, out=exponents)
        counts = np.bincount(exponents, minlength=_ONE + BINS)
        self.counts[0] += counts[0]
        self.counts[1:] += counts[_ONE : _ONE + BINS - 1]

    def add_equal(self, size: int) -> None:
        """Add elements that are equal."""
        self.counts[0] += self._share(size)

    def _share(self, size: int) -> int:
        return -(-size // self._part)

    def _distance(self, ours: Array, theirs: Array) -> Floats:
        distance, other = buffer("distance", ours.size), buffer("other", ours.size)
        if ours.dtype == np.int64:  # may be further apart than int64 reaches: subtract as unsigned
            np.copyto(distance, (np.maximum(ours, theirs) - np.minimum(ours, theirs)).view(np.uint64))
            return distance
        np.copyto(distance, ours)
        np.copyto(other, theirs)
        np.subtract(distance, other, out=distance)
        np.abs(distance, out=distance)
        return distance

    def result(self) -> Ulps | None:
        """Return the histogram; None for dtypes that are not floating point."""
        if self.dtype is None:
            return None
        last = int(np.flatnonzero(self.counts).max(initial=0))
        return Ulps(self.dtype, tuple(int(c) for c in self.counts[: last + 1]))


def read_words(piece: Piece, dtype: str, target: str) -> Array:
    """Return the bits of a piece, rounded to `target`, as signed integers."""
    if dtype == target:
        return piece.raw.view(_WORDS[target])
    with np.errstate(over="ignore", under="ignore"):
        if target == "bfloat16":
            return bfloat16_words(piece.narrow.astype(np.float32, copy=False))
        return piece.wide.astype(target).view(_WORDS[target])


def bfloat16_words(single: NDArray[np.float32]) -> NDArray[np.int16]:
    """The nearest bfloat16, ties to even. Values are finite here: NaN and Inf were taken out before."""
    bits = np.ascontiguousarray(single).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return rounded.astype(np.uint16).view(np.int16)


def order_words(words: Array, out: Array, spare: Array) -> None:
    """Turn sign and magnitude into integers that count representable numbers; both zeros are 0."""
    info = np.iinfo(words.dtype)
    np.right_shift(words, info.bits - 1, out=spare)
    np.bitwise_and(words, info.max, out=out)
    np.bitwise_xor(out, spare, out=out)
    np.subtract(out, spare, out=out)
