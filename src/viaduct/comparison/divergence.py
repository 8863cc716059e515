"""The first divergence, for the causes that may explain it: its tensors, and the other rows of the comparison.

A cause predicts the left side from the right one, under the assumption that it is the cause. `explained_share` is the
share of the difference that this prediction removes: one scale for all causes. Of very large tensors only the leading
slices are read, the same on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from viaduct.comparison.calls import divide_by_size
from viaduct.comparison.formats import widen_bfloat16
from viaduct.comparison.layouts import convert_layout
from viaduct.comparison.records import Array, Origin, Pair, Role, Row, StoredTensor
from viaduct.comparison.storage import open_tensor
from viaduct.errors import ViaductError

MAX_ELEMENTS = 1 << 24  # of one tensor that a cause reads; of larger tensors only the leading slices
MAX_SLICES = 4096  # of a tensor in which another order of slices is sought: all pairs of slices are compared
ENOUGH_BY_ORDER = 0.9  # share of the difference that another order of slices must explain at least
WEIGHT_ROLES: tuple[Role, ...] = ("parameter", "gradient", "update")  # these tensors have a weight's shape
Opener = Callable[[StoredTensor], Array]


class ArrayPair(NamedTuple):
    """The values of one tensor on both sides, as NumPy arrays; floats are widened to float64."""

    left: Array
    right: Array


@dataclass
class Divergence:
    """The origin (operator, weight or input, see records.Origin), and all rows; tensors are opened when needed."""

    rows: Sequence[Row]
    origin: Origin
    open: Opener = open_tensor
    cache: dict[int, ArrayPair | None] = field(default_factory=dict)  # by the row's id
    shared_results: dict[str, object] = field(default_factory=dict)  # computed by one cause, used by others
    failures: list[str] = field(default_factory=list)  # messages of causes that raised an exception

    @property
    def row(self) -> Row:
        """Return the row at which the origin was found."""
        return self.rows[self.origin.row_index]

    @property
    def role(self) -> Role:
        return self.row.tensor.role

    @property
    def is_weight(self) -> bool:
        """Return True if the origin's tensor is a parameter, a gradient of one or its update."""
        return self.role in WEIGHT_ROLES

    @property
    def op_type(self) -> str:
        return self.row.tensor.op_type

    @property
    def right_order(self) -> int:
        """Return the origin's position in the right side's order of execution, to compare it with right-only rows."""
        return (self.row.pair.right or self.row.tensor).order

    @property
    def step_rows(self) -> list[Row]:
        """Return the rows of the origin's step and rank."""
        here = (self.origin.step, self.origin.rank)
        return [row for row in self.rows if (row.tensor.step, row.tensor.rank) == here]

    def load_row(self, row: Row | None) -> ArrayPair | None:
        """Return both sides of a row; None if one is missing, unreadable, empty, complex or of another shape."""
        if row is None:
            return None
        if id(row) not in self.cache:
            self.cache[id(row)] = load_pair(row.pair, self.open)
        return self.cache[id(row)]

    def load_right(self, row: Row) -> Array | None:
        """Return the right side alone, without caching it; None if it is missing, unreadable or empty."""
        tensor = row.pair.right
        if tensor is None:
            return None
        try:
            array = self.open(tensor)
        except (OSError, ValueError, ViaductError):
            return None
        return widen(array[select_leading_slices(array.shape)], tensor.dtype) if array.size else None

    def load_arrays(self) -> ArrayPair | None:
        """Return both sides of the origin's tensor; None as in `load_row`."""
        return self.load_row(self.row)

    def load_float_arrays(self) -> ArrayPair | None:
        """Return both sides of the origin's tensor; None as in `load_row`, or if the left is not floating point."""
        arrays = self.load_arrays()
        return arrays if arrays is not None and arrays.left.dtype.kind == "f" else None

    def find_rows(
        self, role: Role, index: int | None = None, *, op: str | None = None, step: int | None = None
    ) -> list[Row]:
        """Return the rows of one role, by default those of the origin's operator and step; the rank is the origin's.

        `index`: only the input, output or parameter with this number.
        """
        op = self.origin.op if op is None else op
        step = self.origin.step if step is None else step
        return [
            row
            for row in self.rows
            if (row.tensor.role, row.tensor.step, row.tensor.rank, row.op) == (role, step, self.origin.rank, op)
            and index in (None, row.tensor.index)
        ]

    def find_first_input(self, op: str | None = None) -> Row | None:
        """Return the row of an operator's first input, by default of the origin's; None if the dump has none."""
        return next(iter(self.find_rows("input", 0, op=op)), None)

    def find_weight(self) -> Row | None:
        """Return the origin's largest parameter: the kernel of a convolution, the matrix of a linear layer."""
        rows = self.find_rows("parameter")
        return max(rows, key=lambda row: math.prod(row.tensor.shape), default=None)

    def list_rows_of_same_shape(self) -> list[Row]:
        """Return the rows of the origin's step and shape with a right side that are not bad, nearest in order first."""
        row, tensor = self.row, self.row.tensor
        similar = [
            other
            for other in self.step_rows
            if other is not row and other.result != "bad" and other.pair.right is not None
            if other.tensor.shape == tensor.shape
        ]
        return sorted(similar, key=lambda other: abs(other.tensor.order - tensor.order))


def load_pair(pair: Pair, open_: Opener) -> ArrayPair | None:
    """Return both tensors of a pair; None if they cannot be compared element by element."""
    if pair.left is None or pair.right is None:
        return None
    try:
        left, right = open_(pair.left), open_(pair.right)
        if pair.layout is not None:
            left = convert_layout(left, pair.layout)
    except (OSError, ValueError, ViaductError):
        return None
    if left.shape != right.shape or not left.size or not {left.dtype.kind, right.dtype.kind} <= set("fiub"):
        return None
    keep = select_leading_slices(left.shape)
    return ArrayPair(widen(left[keep], pair.left.dtype), widen(right[keep], pair.right.dtype))


def select_leading_slices(shape: tuple[int, ...]) -> Any:
    """Return the index of the leading slices along axis 0: at most MAX_ELEMENTS elements, but at least one slice."""
    size = math.prod(shape)
    if size <= MAX_ELEMENTS:
        return ...
    return slice(0, max(1, MAX_ELEMENTS // (size // shape[0])))


def widen(array: Array, dtype: str) -> Array:
    """Return floats as float64, also bfloat16 that is stored as its bits; integers and booleans unchanged."""
    if dtype == "bfloat16" and array.dtype == np.uint16:
        array = widen_bfloat16(array)
    return np.asarray(array, dtype=np.float64) if array.dtype.kind == "f" else np.asarray(array)


def rms(values: Array) -> float:
    """Return the root mean square of the finite values; Inf if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else math.inf


def relative_error(arrays: ArrayPair) -> float:
    """Return the RMS difference relative to the right side's RMS, without NaN and Inf; 0 without a difference.

    It is infinite if only the right side is zero, or if no difference is finite.
    """
    return divide_by_size(rms(arrays.left - arrays.right), rms(arrays.right))


def has_finite_floats(arrays: ArrayPair) -> bool:
    """Return True if both sides are floating point, and neither has NaN or Inf."""
    return all(side.dtype.kind == "f" and bool(np.isfinite(side).all()) for side in arrays)


def flatten_channels(values: Array, axis: int = 1) -> Array:
    """Return the values as a matrix with a row for each channel along `axis`."""
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def correlation(a: Array, b: Array) -> float:
    """Return the correlation coefficient of two arrays; 0 if one is constant."""
    flat_a, flat_b = a.ravel() - a.mean(), b.ravel() - b.mean()
    size = float(np.sqrt(flat_a @ flat_a) * np.sqrt(flat_b @ flat_b))
    return float(flat_a @ flat_b) / size if size else 0.0


def fit_factor(y: Array, x: Array, axes: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """Return the factor a of y = a x by least squares, summed over `axes` (None: all); 0 where x is all zero."""
    squares = np.square(x).sum(axes, keepdims=keepdims)
    factor: Array = (x * y).sum(axes, keepdims=keepdims) / np.where(squares > 0, squares, 1.0)
    return factor


def fit_line(x_CN: Array, y_CN: Array) -> tuple[Array, Array]:
    """Fit y = slope x + offset by least squares, for each row (a channel); return both as columns."""
    mean = x_CN.mean(1, keepdims=True)
    slope = fit_factor(y_CN, x_CN - mean, 1, keepdims=True)
    return slope, y_CN.mean(1, keepdims=True) - slope * mean


def are_alike(a: Array, b: Array) -> Array:
    """Return where two arrays have equal values or both NaN."""
    alike: Array = (a == b) | (np.isnan(a) & np.isnan(b))
    return alike


def explained_share(prediction: Array, arrays: ArrayPair) -> float:
    """Return the share of the difference that a prediction of the left side removes, at least 0.

    It is 0 if NaN or Inf on one side only is not predicted.
    """
    left = arrays.left.astype(np.float64)  # NumPy cannot subtract booleans, and unsigned integers wrap around
    with np.errstate(invalid="ignore"):  # Inf - Inf
        difference, remaining = left - arrays.right, left - prediction
    known = np.isfinite(difference)
    if not known.all() and not (known | are_alike(left, arrays.right) | are_alike(left, prediction)).all():
        return 0.0
    # Where the prediction is not finite, it explains nothing.
    remaining = np.where(np.isfinite(remaining), remaining, difference)[known]
    before, after = rms(difference[known]), rms(remaining)
    return max(0.0, 1 - after / before) if 0 < before < math.inf else 0.0


# ---- the order of slices along an axis in which one tensor equals the other


def find_order(arrays: ArrayPair, axis: int) -> Array | None:
    """Return the order of the right side's slices that explains enough of the difference; None if there is none."""
    count = arrays.left.shape[axis] if axis < arrays.left.ndim else 0
    if not 2 <= count <= MAX_SLICES or arrays.left.size // count < 2:
        return None
    order = match_slices(project_slices(arrays.left, axis), project_slices(arrays.right, axis))
    if order is None or explained_share(np.take(arrays.right, order, axis), arrays) < ENOUGH_BY_ORDER:
        return None
    return order


def project_slices(values: Array, axis: int) -> Array:
    """Return three numbers for each slice, its products with fixed random vectors: equal slices have equal numbers."""
    slices = flatten_channels(values, axis).astype(np.float64)
    vectors = np.random.default_rng(0).standard_normal((slices.shape[1], 3))
    return np.nan_to_num(slices) @ vectors


def match_slices(left: Array, right: Array) -> Array | None:
    """Return the nearest right slice of each left one by the numbers of `project_slices`.

    None if two left slices have the same one, or if each has the one at its own index.
    """
    distance = np.zeros((len(left), len(right)))
    for column in range(left.shape[1]):
        distance += np.abs(left[:, column, None] - right[None, :, column])
    scale = float(np.abs(right).mean()) or 1.0
    distance[np.diag_indices(len(left))] -= 1e-6 * scale  # among equal slices, prefer the one at the same index
    order = distance.argmin(1)
    moves = (order != np.arange(len(order))).any()
    return order if moves and len(np.unique(order)) == len(order) else None


def describe_order(order: Array) -> str:
    """Describe how the slices in `order` (from `find_order`) moved."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    if np.array_equal(order, np.arange(len(order))[::-1]):
        return f"all {len(order)} in reverse"
    if len(moved) == 2:
        return f"{moved[0]} and {moved[1]} exchanged"
    shift = int(order[0])
    if np.array_equal(order, np.roll(np.arange(len(order)), -shift)):
        return f"all {len(order)} moved on by {shift}"
    return f"{len(moved)} of {len(order)} in other places"
