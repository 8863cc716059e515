"""Comparisons built in memory: a few tensors with names, roles and an order, judged as the command judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.comparison.causes import find_causes
from viaduct.comparison.drift import make_row
from viaduct.comparison.explain import explain
from viaduct.comparison.judge import Judgement, judge
from viaduct.comparison.measures import Unmeasurable, measure
from viaduct.comparison.measuring import Refusal
from viaduct.comparison.rows import Cause, Explanation, Origin, Row
from viaduct.comparison.scene import Scene
from viaduct.comparison.tensors import Pair, Role, Stored

Array = np.ndarray[Any, Any]


@dataclass
class Story:
    """Tensors in the order in which they are told; `draw` gives numbers."""

    rows: list[Row] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def normal(self, *shape: int) -> Array:
        return self.draw.standard_normal(shape).astype(np.float32)

    def tell(
        self,
        op: str,
        left: Array | None,
        right: Array | None,
        role: Role = "output",
        *,
        index: int = 0,
        order: int | None = None,
        step: int = 0,
        rank: int = 0,
        op_type: str = "",
        parameter: str = "",
        dtypes: tuple[str, str] = ("", ""),
    ) -> Row:
        """One more pair; None: that side has no such tensor."""
        place = len(self.rows) if order is None else order
        sides = [
            None
            if array is None
            else self._stored(array, dtype, op, op_type, role, index, place, step, rank, parameter)
            for array, dtype in ((left, dtypes[0]), (right, dtypes[1]))
        ]
        pair = Pair(place, sides[0], sides[1], op, op, "name")
        answer: object
        try:
            answer = Refusal("missing") if left is None or right is None else measure(left, right, *dtypes)
        except Unmeasurable as error:
            answer = Refusal(str(error))
        self.rows.append(make_row(pair, answer, None))
        return self.rows[-1]

    def _stored(self, array: Array, dtype: str, op: str, op_type: str, role: Role, index: int, *numbers: Any) -> Stored:
        order, step, rank, parameter = numbers
        member = str(len(self.arrays))
        self.arrays[member] = array
        kind, shape = dtype or str(array.dtype), array.shape
        place = order, step, rank, kind, shape, Path("memory"), member
        return Stored(op, op_type, role, index, *place, parameter=parameter)

    def open(self, stored: Stored) -> Array:
        return self.arrays[stored.member]

    def judged(self, edges: Mapping[str, Sequence[str]] | None = None) -> Judgement:
        return judge(self.rows, {op: tuple(feeders) for op, feeders in (edges or {}).items()})

    def explained(self, edges: Mapping[str, Sequence[str]] | None = None) -> Explanation:
        return explain(self.judged(edges), dict(edges or {}), self.open)

    def causes(self, place: int = -1, kind: str = "operator") -> tuple[Cause, ...]:
        """What is suspected of one row, the last one told."""
        place %= len(self.rows)
        stored = self.rows[place].stored
        origin = Origin(stored.op, kind, stored.step, stored.rank, place, "")  # type: ignore[arg-type]
        scene = Scene(self.rows, origin, self.open)
        found = find_causes(scene)
        assert not scene.failures, scene.failures
        return found

    def cause(self, place: int = -1, kind: str = "operator") -> str | None:
        found = self.causes(place, kind)
        return found[0].name if found else None
