"""Rows grouped into calls: one execution of an operator or module, with its inputs, outputs and gradients.

The call of a module contains the calls of its inner modules, as their names show (layer1 and layer1.conv). The edges of
the dump, if it has any, show from which calls a call reads.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from viaduct.comparison.measures import Measures
from viaduct.comparison.naming import ROOT_MODULE
from viaduct.comparison.records import Role, Row

SEPARATOR = re.compile(r"[./]")
FORWARD_ROLES: tuple[Role, ...] = ("input", "output")
BACKWARD_ROLES: tuple[Role, ...] = ("grad_output", "grad_input", "gradient")


@dataclass
class Call:
    """One call of an operator: the indices of its rows, by role."""

    op: str
    number: int  # among the calls of this operator in the step, from 0
    order: int  # position in execution order
    row_indices: dict[Role, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class RankStep:
    """One step of one rank: its calls in execution order, and the rows of its parameters and updates.

    A row is given by its index in `rows`, which holds the rows of all steps and ranks.
    """

    rows: Sequence[Row]
    number: int  # of the step
    rank: int
    calls: tuple[Call, ...]
    producers: Mapping[str, tuple[str, ...]]  # operator -> the operators whose outputs it reads
    parameters: tuple[int, ...]
    updates: tuple[int, ...]
    inner_calls: Mapping[str, Sequence[Call]]  # module -> the calls within it, at any depth
    calls_by_op: Mapping[str, Sequence[Call]]

    def list_bad_rows(self, call: Call, *roles: Role) -> list[int]:
        return [index for role in roles for index in call.row_indices.get(role, ()) if self.rows[index].result == "bad"]

    def find_largest_error(self, row_indices: Iterable[int]) -> float:
        return max((compute_error(self.rows[index]) for index in row_indices), default=0.0)

    def list_inner_calls(self, call: Call) -> Sequence[Call]:
        return self.inner_calls.get(call.op, ())

    def list_producing_calls(self, call: Call) -> list[Call]:
        """Return the earlier calls whose outputs this one may read: edges name operators, not their calls."""
        others = (other for op in self.producers.get(call.op, ()) for other in self.calls_by_op.get(op, ()))
        return [other for other in others if other.order <= call.order and other is not call]


def contains_module(outer: str, inner: str) -> bool:
    """Return True if one module contains another, judged by their names."""
    return outer in iterate_enclosing(inner)


def compute_error(row: Row) -> float:
    """Return the RMS difference relative to the size of the right tensor (SideStatistics.size).

    It is 0 for a row without measures, and infinite if NaN or Inf differ.
    """
    measures = row.measures
    if measures is None:
        return 0.0
    if measures.mismatched:
        return math.inf
    if measures.statistics_only:
        return estimate_error(measures)
    return divide_by_size(measures.root_mean_square, measures.right.size)


def estimate_error(measures: Measures) -> float:
    """Return the largest error that can be derived from dumped statistics alone; 0 if none can."""
    errors = [divide_by_size(measures.max_absolute, measures.right.size), measures.relative_euclidean]
    return max((error for error in errors if not math.isnan(error)), default=0.0)


def divide_by_size(error: float, size: float) -> float:
    """Return an error relative to a size; 0 for no error, infinite if only the size is zero."""
    if error == 0.0:
        return 0.0
    return error / size if size > 0.0 else math.inf


def group_by_step(rows: Sequence[Row], producers: Mapping[str, tuple[str, ...]]) -> list[RankStep]:
    """Group rows by step and rank, in order."""
    rows_by_step: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        rows_by_step[row.tensor.step, row.tensor.rank].append(index)
    return [make_rank_step(rows, *key, indices, producers) for key, indices in sorted(rows_by_step.items())]


def make_rank_step(
    rows: Sequence[Row], step: int, rank: int, row_indices: Sequence[int], producers: Mapping[str, tuple[str, ...]]
) -> RankStep:
    calls: dict[tuple[str, int], Call] = {}
    weights: dict[Role, list[int]] = {"parameter": [], "update": []}
    for index in row_indices:
        tensor = rows[index].tensor
        if tensor.role in weights:
            weights[tensor.role].append(index)
            continue
        call = calls.setdefault((tensor.op, tensor.call), Call(tensor.op, tensor.call, tensor.order))
        call.order = min(call.order, tensor.order)
        call.row_indices[tensor.role].append(index)
    ordered = tuple(sorted(calls.values(), key=lambda call: call.order))
    parameters, updates = (tuple(sorted(indices, key=lambda n: rows[n].tensor.order)) for indices in weights.values())
    return RankStep(rows, step, rank, ordered, producers, parameters, updates, *group_calls(ordered))


def group_calls(calls: Sequence[Call]) -> tuple[dict[str, list[Call]], dict[str, list[Call]]]:
    """Return the calls inside each module, and the calls of each operator."""
    calls_by_op: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        calls_by_op[call.op].append(call)
    inner_calls: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        for outer in iterate_enclosing(call.op):
            if outer in calls_by_op:
                inner_calls[outer].append(call)
    return dict(inner_calls), dict(calls_by_op)


def iterate_enclosing(op: str) -> Iterator[str]:
    """Yield the names of the modules that may contain an operator: the network's, a and a.b for a.b.c."""
    if op != ROOT_MODULE:
        yield ROOT_MODULE
    yield from (op[: match.start()] for match in SEPARATOR.finditer(op) if match.start())
