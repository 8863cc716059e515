"""Exhaustive search: every valid point in the order of the space, the default first."""

from __future__ import annotations

from collections.abc import Sequence

from viaduct.tuning.search.base import Searcher
from viaduct.tuning.space import Code, Point, Space


class ExhaustiveSearcher(Searcher):
    """Ask for every point."""

    def __init__(
        self, space: Space, seed: int, budget_measurements: int | None = None, neighbours: Sequence[Point] = ()
    ) -> None:
        super().__init__(space, seed, budget_measurements, neighbours)
        self.queue = iter([space.encode(space.default), *space.codes])

    def propose(self) -> Code | None:
        return next((code for code in self.queue if code not in self.asked), None)
