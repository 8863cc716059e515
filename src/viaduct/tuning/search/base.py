"""Base class of the search methods: `ask` returns a point to measure, `tell` records its time.

A point maps each parameter to a value; its code has the positions of these values (viaduct/search_space.py). A searcher
is deterministic: the same arguments and the same calls of `ask` and `tell` give the same points, so an interrupted
search resumes by replaying its journal. `ask` returns each point at most once, and no point that `tell` has recorded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from viaduct.errors import BadValue
from viaduct.search_space import Code, Point, Space


class Searcher(ABC):
    """Proposes points of a space, using the times of earlier points. Subclasses implement `propose`."""

    def __init__(
        self, space: Space, seed: int, budget_measurements: int | None = None, neighbours: Sequence[Point] = ()
    ) -> None:
        if budget_measurements is not None and budget_measurements < 1:
            raise BadValue(
                f"a search of {budget_measurements} measurements cannot measure anything.", "Give 1 or more."
            )
        self.space = space
        self.random = np.random.default_rng(seed)
        self.budget = min(space.size, budget_measurements or space.size)
        self.starts = list_starts(space, neighbours)
        self.times: dict[Code, float | None] = {}  # in microseconds; None: the point failed
        self.asked: set[Code] = set()  # returned by `ask`, or given to `tell`

    def ask(self) -> Point | None:
        """Return the next point to measure; None if the budget is used up or no point remains."""
        if len(self.asked) >= self.budget:
            return None
        code = self.propose()
        if code is None:
            return None
        self.record_asked(code)
        return self.space.decode(code)

    def tell(self, point: Point, microseconds: float | None) -> None:
        """Record a point's time; None if it failed. A second time for the same point replaces the first."""
        if microseconds is not None and not (math.isfinite(microseconds) and microseconds > 0):
            raise BadValue(f"a time of {microseconds} microseconds is not a measurement; a failure is None.")
        code = self.space.encode(point)
        if code not in self.asked:
            self.record_asked(code)
        self.times[code] = microseconds
        self.on_time(code, microseconds)

    @property
    def best(self) -> tuple[Point, float] | None:
        """The fastest point so far and its time; None as long as none was measured without a failure."""
        measured = [(time, code) for code, time in self.times.items() if time is not None]
        if not measured:
            return None
        time, code = min(measured)
        return self.space.decode(code), time

    def rank_codes(self) -> list[Code]:
        """Return the points that were measured without a failure, fastest first."""
        return [code for _, code in sorted((time, code) for code, time in self.times.items() if time is not None)]

    def draw_unasked(self) -> Code | None:
        """Return a random point that was not asked for; None if all were asked for."""
        codes = self.space.codes
        for _ in range(64):  # cheaper than listing all points as long as most were not asked for
            code = codes[int(self.random.integers(len(codes)))]
            if code not in self.asked:
                return code
        unasked = [code for code in codes if code not in self.asked]
        return unasked[int(self.random.integers(len(unasked)))] if unasked else None

    def find_start(self) -> Code | None:
        """Return the first of `starts` (default, hints, neighbours) that was not asked for; None if there is none."""
        return next((code for code in self.starts if code not in self.asked), None)

    def record_asked(self, code: Code) -> None:
        """Record that a point was asked for or told."""
        self.asked.add(code)
        self.on_asked(code)

    @abstractmethod
    def propose(self) -> Code | None:
        """Return a point that was not asked for yet; None if there is none."""

    def on_time(self, code: Code, microseconds: float | None) -> None:  # noqa: B027
        """Learn from a new time; None: the point failed. Methods that do not learn inherit this empty function."""

    def on_asked(self, code: Code) -> None:  # noqa: B027
        """Record that a point may not be proposed again. Methods that look at `asked` inherit this empty function."""


def list_starts(space: Space, neighbours: Sequence[Point]) -> list[Code]:
    """Return the default, the hints and the neighbours that fit into the space, each once."""
    adapted = (space.adapt(point) for point in neighbours)
    points = [space.default, *space.hints, *(point for point in adapted if point is not None)]
    return list(dict.fromkeys(space.encode(point) for point in points))
