"""Tree search (RL) first, then genetic search (GA), which learns from all measurements, also those of tree search."""

from __future__ import annotations

from collections.abc import Sequence

from viaduct.tuning.search.base import Searcher
from viaduct.tuning.search.genetic import GeneticSearcher
from viaduct.tuning.search.tree import TreeSearcher
from viaduct.tuning.space import Code, Point, Space

TREE_SHARE = 0.5  # of the measurements


class CombinedSearcher(Searcher):
    """Spend the first half of the budget on tree search; the population begins with its best points."""

    def __init__(
        self, space: Space, seed: int, budget_measurements: int | None = None, neighbours: Sequence[Point] = ()
    ) -> None:
        super().__init__(space, seed, budget_measurements, neighbours)
        self.tree = TreeSearcher(space, seed, budget_measurements, neighbours)
        self.genetic = GeneticSearcher(space, seed + 1, budget_measurements, neighbours)
        self.tree_budget = max(1, int(self.budget * TREE_SHARE))

    def propose(self) -> Code | None:
        return (self.tree if len(self.asked) < self.tree_budget else self.genetic).propose()

    def note_asked(self, code: Code) -> None:
        self.tree.mark(code)
        self.genetic.mark(code)

    def learn(self, code: Code, microseconds: float | None) -> None:
        point = self.space.decode(code)
        if len(self.asked) <= self.tree_budget:
            self.tree.tell(point, microseconds)
        self.genetic.tell(point, microseconds)
