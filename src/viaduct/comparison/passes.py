"""The two passes over a pair of tensors: the first finds sums, extremes and positions, the second needs their results.

A tensor is read in pieces. The sum over a piece is a float64; the sums of all pieces are added exactly by math.fsum.
The square of a value far above 1e140 or below 1e-140 would leave the range of float64. If the largest magnitude of a
side or of the difference is beyond these, the first pass runs again on values that are multiplied by a power of two,
which loses no digit that counts.

Unless it says otherwise, a value is an element that is finite on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.chunks import CHUNK, FLOATS, LARGE_INTEGERS, FlatTensor, Floats, Piece, reuse_buffer
from viaduct.comparison.records import Array
from viaduct.comparison.ulps import UlpCounter

# KL divergence: "book" is that of the documents of CANN (Ascend's toolkit), "floored" raises values to FLOOR at least.
KldVariant = Literal["book", "floored"]
Extremes = tuple[float, float, float, float]  # left low and high, right low and high
EPSILON = 2.22e-16  # float64's epsilon; where it is divided by, a value or norm at or below it counts as zero
FLOOR = 1.1920929e-07  # float32's epsilon
HALF_LIMIT = 65504.0  # the largest float16
MAX_KEPT = 10  # largest errors, and positions of NaN and Inf of a side, that are kept for the page
BINS = 40  # of the histogram of values
SAMPLE = 16384  # values of each side in that histogram, about; fewer for small tensors
_SMALLEST = 5e-324  # the smallest float64 above 0
_SAFE = (1e-140, 1e140)  # the squares of values between these, and the sums of the squares, stay within float64


@dataclass(slots=True)
class Nonfinite:
    """Counts of NaN and Inf of one side, and the first positions."""

    nan: int = 0
    plus: int = 0  # +Inf
    minus: int = 0  # -Inf
    positions: list[int] = field(default_factory=list)  # flat indices, at most MAX_KEPT

    def add(self, values: Array, start: int) -> None:
        """Count NaN and Inf of a piece that begins at `start`."""
        bad = np.flatnonzero(~np.isfinite(values))
        nan = int(np.count_nonzero(np.isnan(values)))
        plus = int(np.count_nonzero(values == np.inf))
        self.nan, self.plus, self.minus = self.nan + nan, self.plus + plus, self.minus + bad.size - nan - plus
        self.positions += [start + int(i) for i in bad[: MAX_KEPT - len(self.positions)]]


@dataclass(frozen=True, slots=True)
class Scales:
    """Powers of two by which a side, or the difference, is multiplied before it is squared."""

    left: float = 1.0
    right: float = 1.0
    difference: float = 1.0
    before_subtraction: float = 1.0  # of both sides, so that 1e308 and -1e308 do not overflow


UNSCALED = Scales()


@dataclass(slots=True)
class SideTotals:
    """Sums of one side, with scaled values, and its extremes, unscaled."""

    scale: float
    count: int = 0
    sums: list[float] = field(default_factory=list)  # one for each piece
    squares: list[float] = field(default_factory=list)  # sums of squares, one for each piece
    low: float = math.inf
    high: float = -math.inf
    saturated: int = 0  # magnitudes of at least HALF_LIMIT, also Inf and where the other side is not finite
    nonfinite: Nonfinite = field(default_factory=Nonfinite)

    def add(self, wide: Floats, low: float, high: float) -> None:
        """Add the sums and extremes of a piece."""
        self.count += wide.size
        self.sums.append(float(np.add.reduce(wide)))
        self.squares.append(float(np.dot(wide, wide)))
        self.low, self.high = min(self.low, low), max(self.high, high)

    @property
    def largest_magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def norm(self) -> float:
        """Return the norm of the scaled values."""
        return math.sqrt(sum_exactly(self.squares))

    @property
    def mean(self) -> float:
        """Return the mean of the scaled values."""
        return sum_exactly(self.sums) / self.count if self.count else math.nan

    @property
    def large_mean(self) -> float | None:
        """Return the mean if E[x²] - E[x]² would lose more than two digits, else None."""
        square = self.norm**2 / self.count
        return self.mean if square - self.mean**2 < 0.01 * square else None

    def compute_std(self, variance: float | None) -> float:
        """Return the standard deviation, unscaled. `variance`: from deviations from the mean, if it was computed."""
        if variance is None:
            variance = self.norm**2 / self.count - self.mean**2
        return 0.0 if self.low == self.high else math.sqrt(max(variance, 0.0)) / self.scale


class FirstPass:
    """Computes sums, extremes and the largest errors of both tensors."""

    def __init__(self, left: FlatTensor, right: FlatTensor, scales: Scales = UNSCALED) -> None:
        self.flats, self.scales = (left, right), scales
        self.left, self.right = SideTotals(scales.left), SideTotals(scales.right)
        # Sums, one for each piece, of left times right and of the squared, absolute and relative differences.
        self.products: list[float] = []
        self.squares: list[float] = []
        self.absolutes: list[float] = []
        self.relatives: list[float] = []
        self.max_absolute = self.max_relative = 0.0
        self.differing = 0  # elements with a difference above 0
        self.mismatched = 0  # elements of which one is NaN or Inf and the other is not the same
        self.first_mismatch: int | None = None
        self.pieces_with_nonfinite: set[int] = set()  # their starts
        self.top = LargestErrors()
        length = min(CHUNK, left.count)
        self.ulps = UlpCounter(left.dtype, right.dtype, left.count)
        self._difference, self._ratio = reuse_buffer("one", length), reuse_buffer("two", length)
        self._mask = reuse_buffer("mask", length, bool)
        self._floats = left.dtype in FLOATS, right.dtype in FLOATS
        self._same_dtype = left.dtype == right.dtype  # bfloat16 and uint16 have the same raw elements
        self._has_large_integers = left.dtype in LARGE_INTEGERS or right.dtype in LARGE_INTEGERS

    def run(self) -> FirstPass:
        left, right = self.flats
        with np.errstate(all="ignore"):
            for start in range(0, left.count, CHUNK):
                self._process(left.read_piece(start), right.read_piece(start), start)
        return self

    def _process(self, left: Piece, right: Piece, start: int) -> None:
        extremes = (*find_extremes(left), *find_extremes(right))
        positions = None
        if not all(map(math.isfinite, extremes)):
            left, right, positions = self._select_finite(left, right, start)
            if not positions.size:
                return
            extremes = (*find_extremes(left), *find_extremes(right))
        self._count_saturated(left, right, extremes)
        self._add_piece(left, right, extremes, start, positions)

    def _select_finite(self, left: Piece, right: Piece, start: int) -> tuple[Piece, Piece, Array]:
        """Count NaN and Inf; return the elements that are finite on both sides, and their positions."""
        self.left.nonfinite.add(left.as_float, start)
        self.right.nonfinite.add(right.as_float, start)
        left_values, right_values = left.as_float, right.as_float
        valid = np.isfinite(left_values) & np.isfinite(right_values)
        alike = valid | (np.isnan(left_values) & np.isnan(right_values)) | (left_values == right_values)
        mismatched = np.flatnonzero(~alike)
        self.mismatched += mismatched.size
        if mismatched.size and self.first_mismatch is None:
            self.first_mismatch = start + int(mismatched[0])
        self.left.saturated += count_saturated(left_values[~valid])
        self.right.saturated += count_saturated(right_values[~valid])
        self.pieces_with_nonfinite.add(start)
        return select_valid(left, valid), select_valid(right, valid), np.flatnonzero(valid) + start

    def _count_saturated(self, left: Piece, right: Piece, extremes: Extremes) -> None:
        if self._floats[0] and max(map(abs, extremes[:2])) >= HALF_LIMIT:
            self.left.saturated += count_saturated(left.as_float64)
        if self._floats[1] and max(map(abs, extremes[2:])) >= HALF_LIMIT:
            self.right.saturated += count_saturated(right.as_float64)

    def _add_piece(self, left: Piece, right: Piece, extremes: Extremes, start: int, positions: Array | None) -> None:
        left_values = scale_values(left.as_float64, self.scales.left)
        right_values = scale_values(right.as_float64, self.scales.right)
        self.left.add(left_values, *extremes[:2])
        are_equal = self._same_dtype and are_bits_equal(left.raw, right.raw)  # then all errors are 0
        if are_equal and self.scales.left == self.scales.right:
            self.right.add(left_values, *extremes[:2])
            self.products.append(self.left.squares[-1])
            self.ulps.add_equal(left_values.size)
            return
        self.right.add(right_values, *extremes[2:])
        self.products.append(float(np.dot(left_values, right_values)))
        self.ulps.add(left, right)
        self._add_errors(left, right, start, positions)

    def _add_errors(self, left: Piece, right: Piece, start: int, positions: Array | None) -> None:
        difference, ratio = self._difference[: left.as_float64.size], self._ratio[: left.as_float64.size]
        self._subtract(left, right, difference)
        np.abs(difference, out=difference)
        largest = float(np.maximum.reduce(difference))
        if largest == 0.0:
            return
        mask = self._mask[: difference.size]
        self.differing += int(np.count_nonzero(np.greater(difference, 0.0, out=mask)))
        scaled = scale_values(difference, self.scales.difference)
        self.squares.append(float(np.dot(scaled, scaled)))
        self.absolutes.append(float(np.add.reduce(scaled)))
        self.max_absolute = max(self.max_absolute, largest)
        if largest > self.top.least:
            self.top.add(difference, left.as_float64, right.as_float64, start, positions)
        self._add_relative(difference, right.as_float64, ratio)

    def _subtract(self, left: Piece, right: Piece, out: Floats) -> None:
        scale = self.scales.before_subtraction
        np.subtract(scale_values(left.as_float64, scale), scale_values(right.as_float64, scale), out=out)
        if self._has_large_integers:
            out += (left.remainder - right.remainder) * scale

    def _add_relative(self, difference: Floats, right: Floats, ratio: Floats) -> None:
        """Add |x - y| / |y|, and 0 where the right value y counts as zero. `difference`: |x - y|, scaled."""
        mask = self._mask[: ratio.size]
        np.abs(right, out=ratio)
        np.less_equal(ratio, EPSILON, out=mask)
        if self.scales.before_subtraction != 1.0:
            np.multiply(ratio, self.scales.before_subtraction, out=ratio)
        np.divide(difference, ratio, out=ratio)
        if mask.any():
            np.putmask(ratio, mask, 0.0)
        self.relatives.append(float(np.add.reduce(ratio)))
        self.max_relative = max(self.max_relative, float(np.maximum.reduce(ratio)))

    def choose_scales(self) -> Scales:
        """Return the scales with which the sums of squares stay within float64; for most tensors UNSCALED."""
        left, right = self.left.largest_magnitude, self.right.largest_magnitude
        reduction = 0.25 if max(left, right) > 1e307 else 1.0  # the difference may be twice the larger side
        error = self.max_absolute if math.isfinite(self.max_absolute) else math.ldexp(1.0, 1023)
        return Scales(choose_scale(left), choose_scale(right), choose_scale(error * reduction), reduction)


class LargestErrors:
    """The MAX_KEPT largest differences with their positions."""

    def __init__(self) -> None:
        self.least = -1.0  # the smallest error of a full list: only larger ones enter it
        self.entries: list[tuple[float, int, float, float]] = []  # error, flat index, left and right value

    def add(self, difference: Floats, left: Floats, right: Floats, start: int, positions: Array | None) -> None:
        """Add the largest errors of a piece. `positions`: flat indices; None: consecutive from `start`."""
        large = np.flatnonzero(difference >= self._find_entry_bound(difference))
        if large.size > MAX_KEPT:
            large = large[np.argpartition(difference[large], -MAX_KEPT)[-MAX_KEPT:]]
        for i in large.tolist():
            flat_index = start + int(i) if positions is None else int(positions[i])
            self.entries.append((float(difference[i]), flat_index, float(left[i]), float(right[i])))
        self.entries.sort(key=lambda entry: (-entry[0], entry[1]))
        del self.entries[MAX_KEPT:]
        if len(self.entries) == MAX_KEPT:
            self.least = self.entries[-1][0]

    def _find_entry_bound(self, difference: Floats) -> float:
        """Return a lower bound of the errors of this piece that can enter the list.

        It is the MAX_KEPT-th largest among the maxima of groups of 64 elements, so at least MAX_KEPT errors reach it.
        """
        bound = max(self.least, _SMALLEST)
        rows = difference.size // 64
        if self.least > 0.0 or rows <= MAX_KEPT:
            return bound
        largest = np.maximum.reduce(difference[: rows * 64].reshape(rows, 64), axis=1)
        return max(bound, float(np.partition(largest, -MAX_KEPT)[-MAX_KEPT]))


def scale_values(values: Floats, scale: float) -> Floats:
    return values if scale == 1.0 else values * scale


def find_extremes(piece: Piece) -> tuple[float, float]:
    return float(np.minimum.reduce(piece.as_float)), float(np.maximum.reduce(piece.as_float))


def count_saturated(values: Array) -> int:
    return int(np.count_nonzero(np.abs(values) >= HALF_LIMIT))


def select_valid(piece: Piece, valid: NDArray[np.bool_]) -> Piece:
    """Return the elements for which the mask is True."""
    return Piece(piece.raw[valid], piece.as_float[valid], piece.as_float64[valid])


def are_bits_equal(left: Array, right: Array) -> bool:
    """Return True if the bits of two arrays are equal.

    The first elements are compared first, since most unequal arrays differ there.
    """
    if left.dtype != right.dtype:
        return False
    left_bits, right_bits = left.view(f"u{left.dtype.itemsize}"), right.view(f"u{right.dtype.itemsize}")
    return np.array_equal(left_bits[:16], right_bits[:16]) and np.array_equal(left_bits, right_bits)


def sum_exactly(sums: list[float]) -> float:
    """Return the correctly rounded sum, or Inf if float64 cannot hold it."""
    try:
        return math.fsum(sums)
    except OverflowError:  # only sums of positive numbers grow like this
        return math.inf


def choose_scale(size: float) -> float:
    """Return a power of two that brings `size` near 1, or 1 if its square is within float64."""
    if size == 0.0 or _SAFE[0] < size < _SAFE[1]:
        return 1.0
    return math.ldexp(1.0, -max(min(math.frexp(size)[1], 1022), -1022))


class SecondPass:
    """Computes KL divergence, variances, the share within tolerance, and a histogram, with the first pass's scales.

    If `tolerated` or `kld` is None, that result is not computed.
    """

    def __init__(self, first_pass: FirstPass, tolerated: ToleranceCount | None, kld: KldVariant | None) -> None:
        self.first_pass, self.tolerated = first_pass, tolerated
        self.deviations = Deviations(first_pass.left), Deviations(first_pass.right)
        self.samples: tuple[list[Floats], list[Floats]] = ([], [])
        length = min(CHUNK, first_pass.flats[0].count)
        self._scratch = reuse_buffer("one", length)
        self.divergence = KlDivergence(first_pass, kld == "floored", length) if kld else None
        self._stride = (first_pass.flats[0].count // SAMPLE) | 1  # odd, so that the sample has several channels

    def run(self) -> SecondPass:
        left, right = self.first_pass.flats
        with np.errstate(all="ignore"):
            for start in range(0, left.count, CHUNK):
                left_piece, right_piece = left.read_piece(start), right.read_piece(start)
                if start in self.first_pass.pieces_with_nonfinite:
                    valid = np.isfinite(left_piece.as_float) & np.isfinite(right_piece.as_float)
                    left_piece, right_piece = select_valid(left_piece, valid), select_valid(right_piece, valid)
                if left_piece.as_float64.size:
                    self._process(left_piece, right_piece)
        return self

    def _process(self, left_piece: Piece, right_piece: Piece) -> None:
        left, right = left_piece.as_float64, right_piece.as_float64
        self.samples[0].append(left[:: self._stride].copy())
        self.samples[1].append(right[:: self._stride].copy())
        self.deviations[0].add(left, self._scratch[: left.size])
        self.deviations[1].add(right, self._scratch[: left.size])
        if self.tolerated is not None:
            self.tolerated.add(left_piece.as_float, right_piece.as_float)
        if self.divergence is not None:
            self.divergence.add(left, right)

    def histogram(self) -> tuple[float, float, tuple[int, ...], tuple[int, ...]]:
        """Return low, high, and the counts of a sample of each side in the bins between."""
        sides = self.first_pass.left, self.first_pass.right
        low, high = min(side.low for side in sides), max(side.high for side in sides)
        left, right = (count_bins(np.concatenate(sample), low, high) for sample in self.samples)
        return low, high, left, right


def count_bins(sample: Floats, low: float, high: float) -> tuple[int, ...]:
    """Count a sample in equally wide bins between `low` and `high`; all in the first one if these are equal."""
    width = high / BINS - low / BINS  # high - low may overflow
    if not width > 0.0:
        return (sample.size, *[0] * (BINS - 1))
    bins = ((sample / BINS - low / BINS) / width * BINS).astype(np.int64)
    counts = np.bincount(bins, minlength=BINS)
    counts[BINS - 1] += counts[BINS:].sum()  # the highest value itself
    return tuple(int(count) for count in counts[:BINS])


class ToleranceCount:
    """Count of elements whose error is within tolerance of the right value, or of the right side's RMS if it is larger.

    Computed in float32 if no side is wider, which is enough for a share.
    """

    def __init__(self, tolerance: float, allowed: float) -> None:
        self.tolerance, self.allowed = tolerance, allowed  # relative to each value, and absolute
        self.count = 0

    def add(self, left: Array, right: Array) -> None:
        kind = np.float32 if left.dtype == right.dtype == np.float32 else np.float64
        error, limit, least = (reuse_buffer(name, left.size, kind) for name in ("one", "two", "three"))
        np.abs(np.subtract(left, right, out=error), out=error)
        np.multiply(np.abs(right, out=limit), kind(self.tolerance), out=limit)
        least.fill(self.allowed)  # NumPy compares two arrays faster than an array with a number
        np.maximum(limit, least, out=limit)
        self.count += int(np.count_nonzero(np.less_equal(error, limit, out=reuse_buffer("mask", left.size, bool))))


class Deviations:
    """Sums of deviations from the mean if it is far above the standard deviation; else nothing is summed."""

    def __init__(self, totals: SideTotals) -> None:
        self.mean, self.scale, self.count = totals.large_mean, totals.scale, totals.count
        self.sums: list[float] = []
        self.squares: list[float] = []

    def add(self, values: Floats, spare: Floats) -> None:
        if self.mean is None:
            return
        np.multiply(values, self.scale, out=spare)
        np.subtract(spare, self.mean, out=spare)
        self.sums.append(float(np.add.reduce(spare)))
        self.squares.append(float(np.dot(spare, spare)))

    def variance(self) -> float | None:
        """Return the variance of the scaled values; None if nothing was summed."""
        if self.mean is None:
            return None
        # The second term corrects the rounding of the mean.
        return sum_exactly(self.squares) / self.count - (sum_exactly(self.sums) / self.count) ** 2


class KlDivergence:
    """KL divergence of the left side from the right one, both scaled to 0 … 1 and divided by their sum.

    If a and b are the scaled sides before the division by their sums A and B, it is sum(a ln(a / b)) / A + ln(B / A).
    Multiplying a or b by a number does not change this. So the book's variant need not scale: a and b are shifted only.
    """

    def __init__(self, first_pass: FirstPass, floored: bool, length: int) -> None:
        self._left, self._right = KldSide(first_pass.left, floored), KldSide(first_pass.right, floored)
        # If a side is scaled, the quotient may leave float64's range.
        self._needs_logs = first_pass.left.scale != 1.0 or first_pass.right.scale != 1.0
        self._a, self._b, self._ratio = (reuse_buffer(name, length) for name in ("one", "two", "four"))
        self._sums: tuple[list[float], list[float], list[float]] = ([], [], [])
        self.infinite = False

    def add(self, left: Floats, right: Floats) -> None:
        if self.infinite:
            return
        a, b = self._left.apply(left, self._a[: left.size]), self._right.apply(right, self._b[: left.size])
        product = self._compute_product(a, b, self._ratio[: left.size])
        self.infinite = product == math.inf
        for sums, value in zip(self._sums, (product, np.add.reduce(a), np.add.reduce(b)), strict=True):
            sums.append(float(value))

    def _compute_product(self, a: Floats, b: Floats, out: Floats) -> float:
        """Return sum(a ln(a / b)): nothing is added where a is 0, and the sum is Inf where only b is 0."""
        if not self._needs_logs:
            np.log(np.divide(a, b, out=out), out=out)
            if not math.isnan(product := float(np.dot(a, out))):
                return product
        # a holds a zero, or a quotient leaves float64.
        np.subtract(np.log(a), np.log(b), out=out)
        np.putmask(out, a == 0.0, 0.0)
        return float(np.dot(a, out))

    def result(self) -> float:
        """Return the divergence; NaN in the book's variant if a side is all zero: it cannot be divided by its sum."""
        if self._left.zero or self._right.zero:
            return math.nan
        if self.infinite:
            return math.inf
        product, a, b = (sum_exactly(sums) for sums in self._sums)
        value = product / a + math.log(b / a)
        return 0.0 if value < EPSILON else value


class KldSide:
    """One side of a KL divergence, shifted to a minimum of 0.

    In the floored variant the values are also divided by their range and raised to FLOOR at least. A constant side
    becomes all ones, or all zeros if its values are 0 and nothing is floored.
    """

    def __init__(self, totals: SideTotals, floored: bool) -> None:
        self.constant = totals.low == totals.high
        self.scale, self.floored = totals.scale, floored
        self.low = totals.low * totals.scale
        self.zero = totals.low == totals.high == 0.0 and not floored
        self.level = 0.0 if self.zero else 1.0  # of a constant side; any constant gives the same shares, 1 / n each
        self.width = totals.high * totals.scale - self.low

    def apply(self, values: Floats, out: Floats) -> Floats:
        if self.constant:
            out.fill(self.level)
            return out
        np.subtract(scale_values(values, self.scale), self.low, out=out)
        if self.floored:
            np.divide(out, self.width, out=out)
            np.maximum(out, FLOOR, out=out)
        return out
