"""Distances of two tensors in units in the last place (ulps), counted in bins of doubling width.

Two sides of different dtypes are first rounded to the coarser one. Of a tensor with more than SAMPLE elements only a
part is counted: the first elements of every piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.chunks import FLOATS, Floats, Piece, reuse_buffer
from viaduct.comparison.records import Array

_COARSEST_FIRST = ("bfloat16", "float16", "float32", "float64")
_BIT_TYPES = {"bfloat16": np.int16, "float16": np.int16, "float32": np.int32, "float64": np.int64}
BINS = 66  # one for equal elements and 65 for distances, which have up to 64 bits for float64
SAMPLE = 1 << 18  # approximate number of elements that are counted of a larger tensor
_EXPONENT_BIAS = 1023  # of float64: the exponent bits of d are the bias plus floor(log2(d))


@dataclass(frozen=True, slots=True)
class UlpHistogram:
    """Histogram of distances: counts[0] are equal, counts[k] are 2^(k-1) … 2^k - 1 units of `dtype` apart.

    Trailing empty bins are left out. Of a large tensor only a sample is counted.
    """

    dtype: str
    counts: tuple[int, ...]


def find_coarser_dtype(left: str, right: str) -> str | None:
    """Return the coarser of two floating-point dtypes; None if either is not floating point."""
    if left not in FLOATS or right not in FLOATS:
        return None
    return min(left, right, key=_COARSEST_FIRST.index)


class UlpCounter:
    """Counter of distances, to which two tensors of `count` elements are added piece by piece."""

    def __init__(self, left: str, right: str, count: int) -> None:
        self.dtype = find_coarser_dtype(left, right)
        self.types = (left, right)
        self.counts = np.zeros(BINS, np.int64)
        self._divisor = -(-count // SAMPLE)  # of each piece the first 1 / _divisor is counted

    def add(self, left: Piece, right: Piece) -> None:
        """Add the distances between two pieces of finite elements."""
        if self.dtype is None:
            return
        size = self._count_sampled(left.raw.size)
        left, right = left.take_first(size), right.take_first(size)
        kind = _BIT_TYPES[self.dtype]
        left_bits, right_bits, spare = (reuse_buffer(f"{name} bits", size, kind) for name in ("left", "right", "spare"))
        order_bits(read_bits(left, self.types[0], self.dtype), left_bits, spare)
        order_bits(read_bits(right, self.types[1], self.dtype), right_bits, spare)
        distance = self._compute_distance(left_bits, right_bits)
        exponents = distance.view(np.int64)  # bits of float64, shifted to the exponent
        np.right_shift(exponents, 52, out=exponents)  # 0 for distance 0
        counts = np.bincount(exponents, minlength=_EXPONENT_BIAS + BINS)
        self.counts[0] += counts[0]
        self.counts[1:] += counts[_EXPONENT_BIAS : _EXPONENT_BIAS + BINS - 1]

    def add_equal(self, size: int) -> None:
        self.counts[0] += self._count_sampled(size)

    def _count_sampled(self, size: int) -> int:
        """Return the number of elements of a piece that are counted."""
        return -(-size // self._divisor)

    def _compute_distance(self, left_bits: Array, right_bits: Array) -> Floats:
        distance, other = reuse_buffer("distance", left_bits.size), reuse_buffer("other", left_bits.size)
        if left_bits.dtype == np.int64:  # the distance may exceed int64: subtract as unsigned
            np.copyto(distance, (np.maximum(left_bits, right_bits) - np.minimum(left_bits, right_bits)).view(np.uint64))
            return distance
        np.copyto(distance, left_bits)
        np.copyto(other, right_bits)
        np.subtract(distance, other, out=distance)
        np.abs(distance, out=distance)
        return distance

    def result(self) -> UlpHistogram | None:
        """Return the histogram; None for dtypes that are not floating point."""
        if self.dtype is None:
            return None
        last = int(np.flatnonzero(self.counts).max(initial=0))
        return UlpHistogram(self.dtype, tuple(int(c) for c in self.counts[: last + 1]))


def read_bits(piece: Piece, dtype: str, target: str) -> Array:
    """Return the bits of a piece, rounded to `target`, as signed integers."""
    if dtype == target:
        return piece.raw.view(_BIT_TYPES[target])
    with np.errstate(over="ignore", under="ignore"):
        if target == "bfloat16":
            return round_to_bfloat16(piece.as_float.astype(np.float32, copy=False))
        return piece.as_float64.astype(target).view(_BIT_TYPES[target])


def round_to_bfloat16(single: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return the bits of the nearest bfloat16 of finite values, ties to even."""
    bits = np.ascontiguousarray(single).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return rounded.astype(np.uint16).view(np.int16)


def order_bits(bits: Array, out: Array, spare: Array) -> None:
    """Turn the bits of floats into integers whose difference is the distance in ulps; both zeros become 0."""
    info = np.iinfo(bits.dtype)
    np.right_shift(bits, info.bits - 1, out=spare)
    np.bitwise_and(bits, info.max, out=out)
    np.bitwise_xor(out, spare, out=out)
    np.subtract(out, spare, out=out)
