"""Alignment of operators without matching names, by type, shapes and values.

A left and a right operator get a score: for their types, the shapes of outputs, inputs and parameters, mean and root
mean square of their values, the last part of their names, and the position among the operators that are matched
already. The sequences of both sides are aligned so that the sum of scores is largest and the order of execution is
kept, as in a text diff. If the order is unknown (plain folders, tfdbg), operators that are each other's only best
choice are matched first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from viaduct.comparison.formats import BFLOAT16, widen_bfloat16
from viaduct.comparison.records import StoredTensor
from viaduct.comparison.storage import open_tensor
from viaduct.errors import ViaductError

MAX_CELLS = 40_000_000  # of the alignment's table (left times right operators); with more nothing is matched
MAX_OPENED = 4_000  # tensors that are opened if the dump has no statistics
SAMPLE = 1 << 14  # of a larger tensor that is opened, at least this many values are read, and fewer than twice as many
EQUAL, CLOSE, FAR = 0.001, 0.02, 0.5  # difference of mean or root mean square, relative to the larger root mean square
MIN_SCORE = 7  # of a match

# Points for each agreement and, below zero, for each contradiction.
SHAPES, SAME_ORDER = 4, 2  # the same sizes in any order of axes; in addition the same order
TYPE, PARAMETERS, INPUTS, NAME = 3, 3, 2, 1  # equal types, parameter shapes, input shapes, last parts of the names
VALUES, SAME_VALUES = 6, 2  # mean and root mean square are CLOSE; in addition EQUAL
SAME_POSITION, OTHER_POSITION = 2, -3  # `matched_before` is equal; it differs by three or more
OTHER_TYPE, OTHER_VALUES = -4, -2  # both types are known and differ; values are FAR apart

_SPLIT = re.compile(r"[/._:]+")
KINDS = {  # part of a type's name -> kind of operator; the first part in this order that occurs counts
    "batchnorm": "norm", "batch_norm": "norm", "bntraining": "norm", "bninfer": "norm", "layernorm": "layernorm",
    "depthwise": "depthwise", "conv": "conv", "matmul": "linear", "linear": "linear", "dense": "linear",
    "addmm": "linear", "gemm": "linear", "relu": "relu", "maxpool": "maxpool", "max_pool": "maxpool",
    "avgpool": "avgpool", "avg_pool": "avgpool", "softmax": "softmax", "dropout": "dropout", "flatten": "reshape",
    "reshape": "reshape", "view": "reshape", "add": "add", "sigmoid": "sigmoid", "concat": "concat", "cat": "concat",
}  # fmt: skip


@dataclass
class UnmatchedCall:
    """One call of an operator without a partner."""

    name: str  # of the operator
    type: str  # of the operator
    matched_before: int  # number of the last matched call before it, counted on the left; 0: none
    tensors: list[StoredTensor]

    @property
    def main_tensors(self) -> list[StoredTensor]:
        """Return its outputs, or else its parameters, gradients or inputs."""
        for roles in (("output",), ("parameter",), ("gradient", "update"), ("grad_output", "grad_input"), ("input",)):
            if tensors := [tensor for tensor in self.tensors if tensor.role in roles]:
                return tensors
        return self.tensors

    def shapes(self, role: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of its tensors of one role, sorted, each with its sizes sorted: layouts may differ."""
        return tuple(sorted(tuple(sorted(tensor.shape)) for tensor in self.tensors if tensor.role == role))


class Match(NamedTuple):
    """Indices of a matched pair of operators in the lists of both sides."""

    left: int
    right: int
    confidence: float


def normalise_kind(op_type: str) -> str:
    """Return the kind of an operator: the same for Conv2d, Conv2D and convolution; "" if it has no type."""
    lowered = op_type.lower()
    return next((kind for part, kind in KINDS.items() if part in lowered), re.sub(r"(v\d+|\d+d|\d+)$", "", lowered))


def can_align(left: int, right: int) -> bool:
    """Return True if the table for so many operators of both sides is not too large."""
    return left * right <= MAX_CELLS


def align_operators(left: Sequence[UnmatchedCall], right: Sequence[UnmatchedCall], is_ordered: bool) -> list[Match]:
    """Return matched pairs of operators. `is_ordered`: the execution order is known."""
    if not left or not right:
        return []
    scores = Scores(left, right)
    matches = [] if is_ordered else scores.find_mutual_best()
    matched_left, matched_right = {match.left for match in matches}, {match.right for match in matches}
    unmatched_left = [number for number in range(len(left)) if number not in matched_left]
    unmatched_right = [number for number in range(len(right)) if number not in matched_right]
    return matches + _align_in_order(scores, unmatched_left, unmatched_right)


class Scores:
    """Scores of each left operator with each right operator, computed a row at a time.

    The arrays have an element for each operator: first the left ones, from `split` on the right ones.
    """

    def __init__(self, left: Sequence[UnmatchedCall], right: Sequence[UnmatchedCall]) -> None:
        both = [*left, *right]
        self.split = len(left)
        self.main = self._number_keys(both, lambda op: tuple(sorted(tuple(sorted(t.shape)) for t in op.main_tensors)))
        self.exact = self._number_keys(both, lambda op: tuple(tensor.shape for tensor in op.main_tensors))
        self.kinds = self._number_keys(both, lambda op: normalise_kind(op.type))
        self.parameters = self._number_keys(both, lambda op: op.shapes("parameter"))
        self.inputs = self._number_keys(both, lambda op: op.shapes("input"))
        self.last = self._number_keys(both, lambda op: _SPLIT.split(op.name)[-1].lower())
        self.matched_before = np.array([op.matched_before for op in both])
        self.values = _collect_values(both)

    @staticmethod
    def _number_keys(ops: Sequence[UnmatchedCall], key: Callable[[UnmatchedCall], Hashable]) -> NDArray[np.int64]:
        """Return a number for each operator, the same for equal keys; 0 for an empty key."""
        numbers: dict[Hashable, int] = {"": 0, (): 0}
        return np.array([numbers.setdefault(key(op), len(numbers)) for op in ops])

    def score_row(self, left: int) -> NDArray[np.float32]:
        """Return the scores of one left operator; 0 if the main tensors have other shapes or the score is too low."""
        total = self._sum_scores(left)
        total[(self.main[left] != self.main[self.split :]) | (total < MIN_SCORE)] = 0
        return total

    def _sum_scores(self, left: int) -> NDArray[np.float32]:
        total = np.full(len(self.main) - self.split, SHAPES, np.float32)
        total += SAME_ORDER * self._compare_keys(self.exact, left)
        kinds = self.kinds[self.split :]
        total += TYPE * self._compare_keys(self.kinds, left)
        total += OTHER_TYPE * ((kinds != self.kinds[left]) & (kinds != 0) & (self.kinds[left] != 0))
        total += PARAMETERS * self._compare_keys(self.parameters, left) + INPUTS * self._compare_keys(self.inputs, left)
        total += NAME * self._compare_keys(self.last, left)
        difference = self._measure_value_distances(left)
        total += VALUES * (difference < CLOSE) + SAME_VALUES * (difference < EQUAL) + OTHER_VALUES * (difference > FAR)
        distance = np.abs(self.matched_before[self.split :] - self.matched_before[left])
        total += SAME_POSITION * (distance == 0) + OTHER_POSITION * (distance > 2)
        return total

    def _compare_keys(self, numbers: NDArray[np.int64], left: int) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = (numbers[self.split :] == numbers[left]) & (numbers[left] != 0)
        return same

    def _measure_value_distances(self, left: int) -> NDArray[np.float64]:
        """Return the larger difference of mean and root mean square, relative to the latter; NaN where unknown."""
        left_values, right_values = self.values[left], self.values[self.split :]
        scale = np.maximum(np.maximum(abs(left_values[1]), np.abs(right_values[:, 1])), 1e-30)
        distance: NDArray[np.float64] = np.abs(right_values - left_values).max(axis=1) / scale
        return distance

    def compute_highest_score(self, left: int, right: int) -> float:
        """Return the score these two would have if all agreed: types and values known of both, shapes known of one."""
        right += self.split
        known = [SHAPES, SAME_ORDER, NAME, SAME_POSITION]
        known += [TYPE] if self.kinds[left] and self.kinds[right] else []
        known += [PARAMETERS] if self.parameters[left] or self.parameters[right] else []
        known += [INPUTS] if self.inputs[left] or self.inputs[right] else []
        known += [VALUES, SAME_VALUES] if not np.isnan(self.values[[left, right]]).any() else []
        return float(sum(known))

    def make_match(self, left: int, right: int, row: NDArray[np.float32]) -> Match:
        """Return a match; its confidence is a heuristic, and lower if another right operator has no lower score."""
        agreement = float(row[right]) / self.compute_highest_score(left, right)
        is_only_best = int((row >= row[right]).sum()) == 1
        return Match(left, right, round(min(0.99, (0.35 + 0.65 * agreement) * (1.0 if is_only_best else 0.9)), 2))

    def find_mutual_best(self) -> list[Match]:
        """Return pairs of operators that are each other's only best choice."""
        best_right: list[int] = []  # of each left operator; -1: none, or several
        best_left = np.full(len(self.main) - self.split, -1)  # of each right operator; -2: several
        highest = np.zeros(len(best_left), np.float32)
        for left in range(self.split):
            row = self.score_row(left)
            best = int(row.argmax())
            best_right.append(best if row[best] > 0 and int((row == row[best]).sum()) == 1 else -1)
            best_left[(row == highest) & (row > 0)], best_left[row > highest] = -2, left
            highest = np.maximum(highest, row)
        pairs = [(left, right) for left, right in enumerate(best_right) if right >= 0 and best_left[right] == left]
        return [self.make_match(left, right, self.score_row(left)) for left, right in pairs]


def _align_in_order(scores: Scores, left: list[int], right: list[int]) -> list[Match]:
    """Return the matches of greatest total score that keep the order."""
    if not left or not right:
        return []
    table = np.zeros((len(left) + 1, len(right) + 1), np.float32)  # [i, j]: best total of the first i and the first j
    for row_number, number in enumerate(left, 1):
        row = scores.score_row(number)[right]
        matched = np.where(row > 0, table[row_number - 1, :-1] + row, 0)  # total if these two are paired
        np.maximum.accumulate(np.maximum(table[row_number - 1, 1:], matched), out=table[row_number, 1:])
    matches = []
    i, j = len(left), len(right)
    while i and j:
        if table[i, j] == table[i - 1, j]:
            i -= 1
        elif table[i, j] == table[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            matches.append(scores.make_match(left[i], right[j], scores.score_row(left[i])))
    return matches[::-1]


def _collect_values(ops: Sequence[UnmatchedCall]) -> NDArray[np.float64]:
    """Return mean and root mean square of the first main tensor (by name, index) of each operator; NaN if unknown."""
    table = np.full((len(ops), 2), np.nan)
    opened = 0
    for row_number, op in enumerate(ops):
        first = min(op.main_tensors, key=lambda tensor: (tensor.parameter, tensor.index))
        mean_and_rms = _read_statistics(first)
        if mean_and_rms is None and first.path is not None and not first.fault and opened < MAX_OPENED:
            opened += 1
            mean_and_rms = _sample_values(first)
        if mean_and_rms is not None and all(map(math.isfinite, mean_and_rms)):
            table[row_number] = mean_and_rms
    return table


def _read_statistics(tensor: StoredTensor) -> tuple[float, float] | None:
    statistics, count = tensor.statistics, math.prod(tensor.shape)
    if not statistics or "mean" not in statistics or "norm" not in statistics or not count:
        return None
    return statistics["mean"], statistics["norm"] / math.sqrt(count)


def _sample_values(tensor: StoredTensor) -> tuple[float, float] | None:
    try:
        array: NDArray[Any] = open_tensor(tensor)
    except (ViaductError, MemoryError):
        return None
    if not array.size or array.dtype.kind == "c":
        return None
    flat = array.ravel(order="K")[:: max(1, array.size // SAMPLE)]
    if tensor.dtype == BFLOAT16:
        flat = widen_bfloat16(flat)
    with np.errstate(all="ignore"):
        values = flat.astype(np.float64)
        return float(values.mean()), float(np.sqrt(np.mean(values * values)))
