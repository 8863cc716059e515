"""Distance between two tensors: the ten measures of the result table, with statistics, histograms and largest errors.

`measure` compares two arrays in float64, piece by piece in two passes, so a memory map is never widened as a whole.
`measure_statistics` compares two tensors of which only statistics were dumped. Left is the accelerator's tensor, right
the reference.

Elements that are NaN on both sides, or Inf of the same sign, are left out and counted in `nonfinite_pairs`. All other
NaN and Inf are counted in `mismatched`. If there are any, the errors are NaN, or Inf if no side has NaN (cosine and KL
divergence are NaN in both cases); statistics, histograms and largest errors still describe the finite elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from viaduct.comparison.chunks import FlatTensor, explain_refusal
from viaduct.comparison.passes import (
    EPSILON,
    UNSCALED,
    FirstPass,
    KldVariant,
    SecondPass,
    SideTotals,
    ToleranceCount,
    sum_exactly,
)
from viaduct.comparison.records import Array
from viaduct.comparison.ulps import UlpHistogram, find_coarser_dtype

Overflow = Literal["YES", "NO", "NaN"]
# For Measures.within, by the coarser dtype; integers use float64's. Twice the rounding of one operation, except that
# float32 and float64 leave room for sums in another order.
TOLERANCES = {"bfloat16": 8e-3, "float16": 1e-3, "float32": 1e-5, "float64": 1e-12}
# The column's name -> the attribute, in the table's order.
MEASURES = {
    "CosineSimilarity": "cosine",
    "MaxAbsoluteError": "max_absolute",
    "AccumulatedRelativeError": "accumulated_relative",
    "RelativeEuclideanDistance": "relative_euclidean",
    "KullbackLeiblerDivergence": "kld",
    "StandardDeviation": "standard_deviation",
    "MeanAbsoluteError": "mean_absolute",
    "RootMeanSquareError": "root_mean_square",
    "MaxRelativeError": "max_relative",
    "MeanRelativeError": "mean_relative",
}


class Unmeasurable(Exception):
    """Two tensors that cannot be compared; the message is the row's reason."""


@dataclass(frozen=True, slots=True)
class ElementIndex:
    """Position of an element: its number in C order, and its index in the tensor's shape."""

    flat: int  # of a complex tensor real and imaginary parts count one by one
    index: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SideStatistics:
    """Statistics of one side: of the elements that are finite on both sides, and counts among all elements."""

    dtype: str
    shape: tuple[int, ...]
    mean: float
    std: float  # of the population: divided by n
    min: float
    max: float
    norm: float
    rms: float
    nan: int = 0
    plus_inf: int = 0
    minus_inf: int = 0
    nonfinite: tuple[ElementIndex, ...] = ()  # the first NaN or Inf
    saturated: int = 0  # number of |x| >= 65504, the largest float16

    @property
    def inf(self) -> int:
        return self.plus_inf + self.minus_inf

    @property
    def size(self) -> float:
        """Return the scale for errors: the RMS, or a tenth of the largest magnitude if that is larger."""
        sizes = (self.rms, abs(self.min) / 10, abs(self.max) / 10)
        return max((size for size in sizes if not math.isnan(size)), default=math.nan)


@dataclass(frozen=True, slots=True)
class LargeError:
    """One of the largest differences."""

    element: ElementIndex
    left: float
    right: float
    error: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of both sides' values in equally wide bins between `low` and `high`; large tensors are sampled."""

    low: float
    high: float
    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """Nine of the ten measures; the tenth is Measures.standard_deviation. `cosine` None: there is only one element."""

    cosine: float | None
    max_absolute: float
    accumulated_relative: float
    relative_euclidean: float
    kld: float
    mean_absolute: float
    root_mean_square: float
    max_relative: float
    mean_relative: float

    @classmethod
    def all(cls, error: float, cosine: float | None) -> Errors:
        """Return measures that all have the value `error`, except the cosine and the KL divergence, which is NaN."""
        return Errors(cosine, error, error, error, math.nan, error, error, error, error)


@dataclass(frozen=True, slots=True)
class Measures(Errors):
    """Result of comparing two tensors."""

    left: SideStatistics
    right: SideStatistics
    count: int  # elements of the tensor; here and below real and imaginary parts are counted separately
    compared: int  # elements that are finite on both sides
    kld_variant: KldVariant = "book"
    differing: int = 0  # compared elements that are not equal; 1 if only statistics were compared and any differs
    nonfinite_pairs: int = 0  # NaN, or Inf of one sign, on both sides
    mismatched: int = 0  # NaN or Inf on one side only, or Inf of both signs
    first_mismatch: ElementIndex | None = None
    within: float = 1.0  # share of compared elements within `tolerance`
    tolerance: float = 0.0  # relative to the right value, or to the right side's RMS if that is larger
    ulps: UlpHistogram | None = None  # None: a side is not floating point, or only statistics were compared
    histogram: Histogram | None = None  # None: nothing is finite, or only statistics were compared
    top: tuple[LargeError, ...] = ()  # the largest errors above 0, at most MAX_KEPT (passes.py)
    overflow: Overflow = "NaN"  # YES if a value of the left side reaches 65504; NaN if that side is not float16
    statistics_only: bool = False
    notes: tuple[str, ...] = ()

    @property
    def standard_deviation(self) -> str:
        """Return (mean;std),(mean;std) of left and right, as in the table: statistics, not an error."""
        sides = (self.left, self.right)
        return ",".join(f"({format_short(side.mean)};{format_short(side.std)})" for side in sides)

    @property
    def scaled_max(self) -> float:
        """Return the largest error relative to the right side's size (SideStatistics.size)."""
        return scale_error(self.max_absolute, self.right.size)

    @property
    def identical(self) -> bool:
        """Return True if all elements are equal as float64 (integers of one dtype exactly), or the same NaN or Inf."""
        return not self.differing and not self.mismatched and not self.statistics_only

    def columns(self) -> dict[str, str]:
        """Return the ten measures as texts of the table."""
        values = {column: getattr(self, name) for column, name in MEASURES.items()}
        return {column: value if isinstance(value, str) else format_measure(value) for column, value in values.items()}


def measure(
    left: Array, right: Array, left_dtype: str = "", right_dtype: str = "", *, kld: KldVariant = "book"
) -> Measures:
    """Compare two arrays of the same number of elements; raise Unmeasurable, with the reason, if that is impossible.

    Shapes may differ: elements are paired in C order. `left_dtype`, `right_dtype`: the dtypes in the dump; needed for
    bfloat16, which is stored as its bits. `kld`: the variant of the KL divergence.
    """
    left_dtype, right_dtype = left_dtype or str(left.dtype), right_dtype or str(right.dtype)
    _refuse(left, right, left_dtype, right_dtype)
    sides = FlatTensor(left, left_dtype, "left"), FlatTensor(right, right_dtype, "right")
    first_pass = FirstPass(*sides).run()
    if (scales := first_pass.choose_scales()) != UNSCALED:
        first_pass = FirstPass(*sides, scales).run()
    tolerance = TOLERANCES[find_coarser_dtype(sides[0].dtype, sides[1].dtype) or "float64"]
    return FinalMeasures(first_pass, kld, tolerance).compute()


def _refuse(left: Array, right: Array, left_dtype: str, right_dtype: str) -> None:
    for side, array, dtype in (("left", left, left_dtype), ("right", right, right_dtype)):
        if reason := explain_refusal(dtype, array):
            raise Unmeasurable(f"{side}: {reason}")
    if (left.dtype.kind == "c") != (right.dtype.kind == "c"):
        raise Unmeasurable(f"{left_dtype} cannot be compared with {right_dtype}: only one side is complex")
    if left.size != right.size:
        raise Unmeasurable(f"shapes differ: {_format_shape(left.shape)} against {_format_shape(right.shape)}")
    if left.size == 0:
        raise Unmeasurable(f"the tensor is empty: shape {_format_shape(left.shape)}")


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


class FinalMeasures:
    """The measures of two tensors, computed from the sums of the two passes (passes.py)."""

    def __init__(self, first_pass: FirstPass, kld: KldVariant, tolerance: float) -> None:
        self.first_pass, self.kld, self.tolerance = first_pass, kld, tolerance
        self.left, self.right, self.scales = first_pass.left, first_pass.right, first_pass.scales
        self.n = self.left.count  # elements that are finite on both sides

    def compute(self) -> Measures:
        """Run the second pass and return the measures."""
        if not self.n:
            return self._assemble((math.nan, math.nan), math.nan, 1.0, None)
        # Every element may be off by this; if none is off by more, none is counted.
        allowed = self.tolerance * self.right.norm / math.sqrt(self.n) / self.right.scale
        second = SecondPass(
            self.first_pass,
            None if self._compute_max_absolute() <= allowed else ToleranceCount(self.tolerance, allowed),
            None if self._has_zero_kld() else self.kld,
        ).run()
        divergence = second.divergence.result() if second.divergence else 0.0
        left_variance, right_variance = (deviations.variance() for deviations in second.deviations)
        stds = self.left.compute_std(left_variance), self.right.compute_std(right_variance)
        within = second.tolerated.count / self.n if second.tolerated else 1.0
        return self._assemble(stds, divergence, within, Histogram(*second.histogram()))

    def _has_zero_kld(self) -> bool:
        """Return True for equal sides. Of sides that are all zero, the divergence is NaN in the book's variant."""
        is_zero = self.right.low == self.right.high == 0.0
        return not self.first_pass.differing and (self.kld == "floored" or not is_zero)

    def _compute_max_absolute(self) -> float:
        return self.first_pass.max_absolute / self.scales.before_subtraction

    def _assemble(
        self, stds: tuple[float, float], divergence: float, within: float, bins: Histogram | None
    ) -> Measures:
        first_pass = self.first_pass
        left = make_statistics(first_pass.flats[0], self.left, stds[0])
        right = make_statistics(first_pass.flats[1], self.right, stds[1])
        flat, mismatch = first_pass.flats[0], first_pass.first_mismatch
        return Measures(
            **asdict(self._replace_errors(self._compute_errors(left.norm, right.norm, divergence))),
            left=left,
            right=right,
            count=flat.count,
            compared=self.n,
            kld_variant=self.kld,
            differing=first_pass.differing,
            nonfinite_pairs=flat.count - self.n - first_pass.mismatched,
            mismatched=first_pass.mismatched,
            first_mismatch=None if mismatch is None else ElementIndex(mismatch, flat.find_index(mismatch)),
            within=within,
            tolerance=self.tolerance,
            ulps=first_pass.ulps.result(),
            histogram=bins,
            top=self._list_largest_errors(),
            overflow=self._find_overflow(),
            notes=self._list_notes(),
        )

    def _compute_errors(self, left: float, right: float, divergence: float) -> Errors:
        """Return the errors of the finite elements; `left` and `right` are the unscaled norms."""
        first_pass, n = self.first_pass, self.n
        cosine = self._compute_cosine(left, right)
        if not n:
            return Errors.all(math.nan, cosine)
        scale = self.scales.difference * self.scales.before_subtraction
        distance = math.sqrt(sum_exactly(first_pass.squares))
        accumulated = sum_exactly(first_pass.relatives)
        return Errors(
            cosine,
            self._compute_max_absolute(),
            accumulated,
            # Multiplied in an order that does not overflow.
            0.0 if right <= EPSILON else distance / self.right.norm * (self.scales.right / scale),
            divergence,
            sum_exactly(first_pass.absolutes) / n / scale,
            distance / math.sqrt(n) / scale,
            first_pass.max_relative,
            accumulated / n,
        )

    def _compute_cosine(self, left: float, right: float) -> float | None:
        if self._is_single_element():
            return None
        if left <= EPSILON and right <= EPSILON:
            return 1.0
        if left <= EPSILON or right <= EPSILON or not self.n:
            return math.nan
        return max(-1.0, min(1.0, sum_exactly(self.first_pass.products) / self.left.norm / self.right.norm))

    def _is_single_element(self) -> bool:
        return self.first_pass.flats[0].count == self.first_pass.flats[0].parts

    def _replace_errors(self, errors: Errors) -> Errors:
        """Return the errors; if NaN or Inf are mismatched, all NaN or, if no side has NaN, Inf (`Errors.all`)."""
        first_pass = self.first_pass
        if not first_pass.mismatched:
            return errors
        only_infinite = self.left.nonfinite.nan == self.right.nonfinite.nan == 0
        return Errors.all(math.inf if only_infinite else math.nan, None if errors.cosine is None else math.nan)

    def _list_largest_errors(self) -> tuple[LargeError, ...]:
        find_index, scale = self.first_pass.flats[0].find_index, self.scales.before_subtraction
        return tuple(
            LargeError(ElementIndex(flat, find_index(flat)), left, right, error / scale)
            for error, flat, left, right in self.first_pass.top.entries
        )

    def _find_overflow(self) -> Overflow:
        if self.first_pass.flats[0].dtype != "float16":
            return "NaN"
        return "YES" if self.left.saturated else "NO"

    def _list_notes(self) -> tuple[str, ...]:
        notes = []
        if self.first_pass.flats[0].parts == 2:
            notes.append("complex: real and imaginary parts are compared side by side")
        if self._is_single_element():
            notes.append("a single element: no cosine similarity")
        return tuple(notes)


def make_statistics(flat: FlatTensor, totals: SideTotals, std: float) -> SideStatistics:
    """Return the unscaled statistics of one side; a scale is a power of two, so dividing by it is exact."""
    count, scale, nonfinite = totals.count, totals.scale, totals.nonfinite
    return SideStatistics(
        dtype=flat.dtype if flat.parts == 1 else f"complex of {flat.dtype}",
        shape=tuple(flat.shape),
        mean=totals.mean / scale,
        std=std,
        min=totals.low if count else math.nan,
        max=totals.high if count else math.nan,
        norm=totals.norm / scale if count else math.nan,
        rms=totals.norm / math.sqrt(count) / scale if count else math.nan,
        nan=nonfinite.nan,
        plus_inf=nonfinite.plus,
        minus_inf=nonfinite.minus,
        nonfinite=tuple(ElementIndex(position, flat.find_index(position)) for position in nonfinite.positions),
        saturated=totals.saturated,
    )


def scale_error(error: float, size: float) -> float:
    """Return an error relative to a size; 0 for no error, Inf if only the size is 0, NaN if either is NaN."""
    if math.isnan(error) or math.isnan(size):
        return math.nan
    if error == 0.0:
        return 0.0
    return error / size if size > 0.0 else math.inf


def format_measure(value: float | None) -> str:
    """Format with six decimals, NaN or Inf; never -0.000000; empty for None."""
    if value is None:
        return ""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    text = f"{value:.6f}"
    return text[1:] if text == "-0.000000" else text


def format_short(value: float) -> str:
    """Format with three decimals, as in the StandardDeviation column; below 0.001 as 0.000."""
    if not math.isfinite(value):
        return format_measure(value)
    return "0.000" if abs(value) < 0.001 else f"{value:.3f}"


def measure_statistics(
    left: Mapping[str, float],
    right: Mapping[str, float],
    left_dtype: str = "",
    right_dtype: str = "",
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
) -> Measures:
    """Compare the statistics of tensors that were not stored: min, max, mean and norm.

    The largest difference of min, max and mean is reported as the maximum absolute error, and the norm's relative
    difference as the relative Euclidean distance: lower bounds of these. Other errors are NaN, the cosine is None.
    Only statistics that both sides have are compared; raise Unmeasurable if none is finite and none differs.
    """
    names = [name for name in ("min", "max", "mean", "norm") if name in left and name in right]
    finite = [name for name in names if math.isfinite(left[name]) and math.isfinite(right[name])]
    conflicts = [name for name in names if name not in finite and not _are_equal_or_nan(left[name], right[name])]
    if not finite and not conflicts:
        raise Unmeasurable("the two sides have no finite statistic in common")
    left_side = _make_side_statistics(left, left_dtype, shapes[0])
    right_side = _make_side_statistics(right, right_dtype, shapes[1])
    gaps = [_compute_gap(left[name], right[name]) for name in finite if name != "norm"]
    gap = math.nan
    if "norm" in finite:
        gap = scale_error(abs(left_side.norm - right_side.norm), right_side.norm)
    count = math.prod(shapes[1])
    return Measures(
        **asdict(replace(Errors.all(math.nan, None), max_absolute=max(gaps, default=math.nan), relative_euclidean=gap)),
        left=left_side,
        right=right_side,
        count=count,
        compared=count,
        differing=int(any(gaps) or gap > 0.0),
        # If the dumps do not count NaN and Inf, the statistics that are not finite are counted instead.
        nonfinite_pairs=min(left_side.nan, right_side.nan) + min(left_side.inf, right_side.inf)
        or len(names) - len(finite) - len(conflicts),
        mismatched=abs(left_side.nan - right_side.nan) + abs(left_side.inf - right_side.inf) or len(conflicts),
        within=math.nan,
        statistics_only=True,
        notes=(f"only statistics were dumped: {', '.join(names)} are compared",),
    )


def _compute_gap(left: float, right: float) -> float:
    """Return the absolute difference. Beyond 2^53 it is that of integers, which would be equal as floats."""
    gap = float(abs(left - right))
    return gap if gap or left == right else float(abs(int(left) - int(right)))


def _are_equal_or_nan(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


def _make_side_statistics(values: Mapping[str, float], dtype: str, shape: tuple[int, ...]) -> SideStatistics:
    get = values.get
    return SideStatistics(
        dtype=dtype,
        shape=shape,
        mean=get("mean", math.nan),
        std=get("std", math.nan),
        min=get("min", math.nan),
        max=get("max", math.nan),
        norm=get("norm", math.nan),
        rms=get("norm", math.nan) / math.sqrt(math.prod(shape) or 1),
        nan=int(get("nan", 0)),
        plus_inf=int(get("inf", 0)),  # of both signs: statistics do not tell them apart
    )
