"""Rows put together into calls: one run of one operator or module, with its inputs, outputs and gradients.

A judgement speaks of operators, not of tensors. Modules that hold others are calls too; what they contain is known by
name, and what feeds a call by the edges of the dump, where it has them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from viaduct.comparison.measures import Measures
from viaduct.comparison.rows import Row
from viaduct.comparison.tensors import Role

SEPARATOR = re.compile(r"[./]")
ROOT = "network"  # how our dumps call the outermost module
FORWARD: tuple[Role, ...] = ("input", "output")
BACKWARD: tuple[Role, ...] = ("grad_output", "grad_input", "gradient")


@dataclass
class Call:
    """Places (in the list of rows) of one call's tensors, by role."""

    op: str
    number: int
    order: int
    places: dict[Role, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Moment:
    """One step of one rank: its calls in execution order, and its parameters and updates."""

    rows: Sequence[Row]
    step: int
    rank: int
    calls: tuple[Call, ...]
    feeders: Mapping[str, tuple[str, ...]]
    parameters: tuple[int, ...]
    updates: tuple[int, ...]
    parts: Mapping[str, Sequence[Call]]  # module -> the calls of the modules within it
    by_op: Mapping[str, Sequence[Call]]

    def bad(self, call: Call, *roles: Role) -> list[int]:
        return [place for role in roles for place in call.places.get(role, ()) if self.rows[place].result == "bad"]

    def error(self, places: Iterable[int]) -> float:
        """The largest error among some rows."""
        return max((error_of(self.rows[place]) for place in places), default=0.0)

    def within(self, call: Call) -> Sequence[Call]:
        """The calls of the modules that this one holds."""
        return self.parts.get(call.op, ())

    def feeding(self, call: Call) -> list[Call]:
        """The calls whose outputs this one reads, of those that ran before it."""
        others = (other for op in self.feeders.get(call.op, ()) for other in self.by_op.get(op, ()))
        return [other for other in others if other.order <= call.order and other is not call]


def holds(outer: str, inner: str) -> bool:
    """Whether one module contains another, by their names."""
    return inner != outer and outer in outers(inner)


def error_of(row: Row) -> float:
    """Root mean square of the difference in units of the golden side's size: a mean near 0 has no part in it."""
    measures = row.measures
    if measures is None:
        return 0.0
    if measures.mismatched:
        return math.inf
    if measures.statistics_only:
        return statistics_error(measures)
    return in_units(measures.root_mean_square, measures.right.size)


def statistics_error(measures: Measures) -> float:
    """Of the statistics the one that is furthest off: what can be known without the tensors."""
    gaps = [in_units(measures.max_absolute, measures.right.size), measures.relative_euclidean]
    return max((gap for gap in gaps if not math.isnan(gap)), default=0.0)


def in_units(error: float, size: float) -> float:
    if error == 0.0:
        return 0.0
    return error / size if size > 0.0 else math.inf


def moments(rows: Sequence[Row], feeders: Mapping[str, tuple[str, ...]]) -> list[Moment]:
    """Every step of every rank, in order."""
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[row.stored.step, row.stored.rank].append(place)
    return [moment(rows, step, rank, places[step, rank], feeders) for step, rank in sorted(places)]


def moment(
    rows: Sequence[Row], step: int, rank: int, places: Sequence[int], feeders: Mapping[str, tuple[str, ...]]
) -> Moment:
    calls: dict[tuple[str, int], Call] = {}
    single: dict[Role, list[int]] = {"parameter": [], "update": []}
    for place in places:
        stored = rows[place].stored
        if stored.role in single:
            single[stored.role].append(place)
            continue
        call = calls.setdefault((stored.op, stored.call), Call(stored.op, stored.call, stored.order))
        call.order = min(call.order, stored.order)
        call.places[stored.role].append(place)
    ordered = tuple(sorted(calls.values(), key=lambda call: call.order))
    parameters, updates = (
        tuple(sorted(single[role], key=lambda place: rows[place].stored.order)) for role in ("parameter", "update")
    )
    return Moment(rows, step, rank, ordered, feeders, parameters, updates, *families(ordered))


def families(calls: Sequence[Call]) -> tuple[dict[str, list[Call]], dict[str, list[Call]]]:
    """The calls within each module that is itself a call, and the calls by operator."""
    by_op: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_op[call.op].append(call)
    parts: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        for outer in outers(call.op):
            if outer in by_op:
                parts[outer].append(call)
    return dict(parts), dict(by_op)


def outers(op: str) -> Iterator[str]:
    """The names of the modules that may hold an operator: a and a.b of a.b.c."""
    if op != ROOT:
        yield ROOT
    yield from (op[: match.start()] for match in SEPARATOR.finditer(op) if match.start())
