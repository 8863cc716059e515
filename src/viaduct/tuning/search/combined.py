"""Tree search (RL), then genetic search (GA), which learns from the measurements of both."""

from __future__ import annotations

from collections.abc import Sequence

from viaduct.search_space import Code, Point, Space
from viaduct.tuning.search.base import Searcher
from viaduct.tuning.search.genetic import GeneticSearcher
from viaduct.tuning.search.tree import TreeSearcher

TREE_SHARE = 0.5  # share of the measurements that the tree search gets


class CombinedSearcher(Searcher):
    """Spends the first half of the budget on tree search; the fastest points of it begin the genetic population."""

    def __init__(
        self, space: Space, seed: int, budget_measurements: int | None = None, neighbours: Sequence[Point] = ()
    ) -> None:
        super().__init__(space, seed, budget_measurements, neighbours)
        self.tree = TreeSearcher(space, seed, budget_measurements, neighbours)
        self.genetic = GeneticSearcher(space, seed + 1, budget_measurements, neighbours)
        self.tree_budget = max(1, int(self.budget * TREE_SHARE))

    def propose(self) -> Code | None:
        return (self.tree if len(self.asked) < self.tree_budget else self.genetic).propose()

    def on_asked(self, code: Code) -> None:
        self.tree.record_asked(code)
        self.genetic.record_asked(code)

    def on_time(self, code: Code, microseconds: float | None) -> None:
        point = self.space.decode(code)
        if len(self.asked) <= self.tree_budget:  # later the tree proposes nothing, and its training takes time
            self.tree.tell(point, microseconds)
        self.genetic.tell(point, microseconds)
