"""What a search for causes looks at: the origin's tensors, opened when asked for, and the way to those around it.

A cause predicts what the left side would hold if the cause were true, given the right side. `explained` is the share of
the difference which that prediction takes away: one scale for all causes. Very large tensors are looked at in part,
the same leading slices on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.rows import Origin, Row
from viaduct.comparison.storage import converted, opened
from viaduct.comparison.tensors import Pair, Role, Stored
from viaduct.errors import ViaductError

Array = NDArray[Any]
MOST = 1 << 24  # elements of one tensor that a cause looks at
Opener = Callable[[Stored], Array]


class Both(NamedTuple):
    """One tensor as either side has it, float64 (integers stay as they are)."""

    left: Array
    right: Array


@dataclass
class Scene:
    """The origin, the rows around it, and their tensors."""

    rows: Sequence[Row]
    origin: Origin
    open: Opener = opened
    cache: dict[int, Both | None] = field(default_factory=dict)
    kept: dict[str, object] = field(default_factory=dict)  # what one cause worked out and another may use
    failures: list[str] = field(default_factory=list)  # causes that stumbled over these tensors

    @property
    def row(self) -> Row:
        return self.rows[self.origin.row]

    @property
    def role(self) -> Role:
        return self.row.stored.role

    @property
    def op_type(self) -> str:
        return self.row.stored.op_type

    def both(self, row: Row | None) -> Both | None:
        """Both sides of a row; None where one is missing, unreadable or of another shape."""
        if row is None or row.pair.left is None or row.pair.right is None:
            return None
        if id(row) not in self.cache:
            self.cache[id(row)] = load(row.pair, self.open)
        return self.cache[id(row)]

    def golden(self, row: Row) -> Array | None:
        """The right side alone, and not kept: for a search through many tensors, some without a partner."""
        stored = row.pair.right
        try:
            array = None if stored is None else self.open(stored)
        except (OSError, ValueError, ViaductError):
            return None
        if stored is None or array is None or not array.size:
            return None
        return widened(array[leading(array.shape)], stored.dtype)

    def bad(self) -> Both | None:
        """The tensor that made this operator the origin."""
        return self.both(self.row)

    def of(self, role: Role, index: int | None = None, *, op: str | None = None, step: int | None = None) -> list[Row]:
        """Rows of an operator (the origin's), in the origin's step, by role."""
        wanted_op = self.origin.op if op is None else op
        wanted_step = self.origin.step if step is None else step
        return [
            row
            for row in self.rows
            if (row.stored.role, row.stored.step, row.stored.rank) == (role, wanted_step, self.origin.rank)
            and row.op == wanted_op
            and index in (None, row.stored.index)
        ]

    def weight(self) -> Row | None:
        """The origin's largest parameter: the kernel of a convolution, the matrix of a linear layer."""
        rows = self.of("parameter")
        return max(rows, key=lambda row: math.prod(row.stored.shape), default=None)

    def alike(self, row: Row) -> Iterator[Row]:
        """Rows of the same step that are not bad, with tensors of this row's shape, nearest to it first."""
        stored = row.stored
        near = [
            other
            for other in self.rows
            if other is not row and other.result != "bad" and other.pair.right is not None
            if other.stored.shape == stored.shape
            if (other.stored.step, other.stored.rank) == (stored.step, stored.rank)
        ]
        return iter(sorted(near, key=lambda other: abs(other.stored.order - stored.order)))


def load(pair: Pair, open_: Opener) -> Both | None:
    """Both tensors of a pair; None if they cannot be laid side by side."""
    if pair.left is None or pair.right is None:
        return None
    try:
        left, right = open_(pair.left), open_(pair.right)
        if pair.layout is not None:
            left = converted(left, pair.layout)
    except (OSError, ValueError, ViaductError):
        return None
    if left.shape != right.shape or not left.size or not {left.dtype.kind, right.dtype.kind} <= set("fiub"):
        return None
    keep = leading(left.shape)
    return Both(widened(left[keep], pair.left.dtype), widened(right[keep], pair.right.dtype))


def leading(shape: tuple[int, ...]) -> Any:
    """As many leading slices as may be looked at."""
    size = math.prod(shape)
    if size <= MOST:
        return ...
    return slice(0, max(1, MOST // (size // shape[0])))


def widened(array: Array, dtype: str) -> Array:
    """Floating point as float64, bfloat16 bits among them; integers and truth values untouched."""
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.asarray(array, dtype=np.float64) if array.dtype.kind == "f" else np.asarray(array)


def rms(values: Array) -> float:
    """Root mean square, of the finite values."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else math.inf


def explained(prediction: Array, both: Both) -> float:
    """The share of the difference between both sides that a prediction of the left side takes away, at least 0."""
    left = both.left.astype(np.float64)  # truth values have no difference, unsigned numbers a wrong one
    before, after = rms(left - both.right), rms(left - prediction)
    return max(0.0, 1 - after / before) if 0 < before < math.inf else 0.0
