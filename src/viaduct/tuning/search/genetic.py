"""Genetic search, one child at a time.

The population consists of the fastest points so far (elitism). The first points are the default, the hints, the
neighbours and random points. A child has one or two parents, selected by tournament. Each of its values comes from one
of them; some values mutate to an adjacent or any other value. A child that is invalid or was proposed before is
replaced by one with more mutations; after TRIES children a random point is proposed.
"""

from __future__ import annotations

from viaduct.search_space import Code
from viaduct.tuning.search.base import Searcher

POPULATION = 16  # number of points that can become parents
RANDOM_START = 24  # random points before the first child, at most a quarter of the budget
TOURNAMENT = 3  # random candidates; the fastest becomes a parent
CROSSOVER = 0.7  # share of children with two parents; other children have one
ADJACENT = 0.5  # share of mutations that go to an adjacent value
IMMIGRANTS = 0.08  # share of random points among the children, against premature convergence
TRIES = 60  # children that are bred before a random point is proposed


class GeneticSearcher(Searcher):
    """Breeds points from the fastest points so far."""

    def propose(self) -> Code | None:
        start = self.find_start()
        if start is not None:
            return start
        population = self.rank_codes()[:POPULATION]
        needed = len(self.starts) + min(RANDOM_START, self.budget // 4)
        if len(self.asked) < needed or len(population) < 2 or self.random.random() < IMMIGRANTS:
            return self.draw_unasked()
        return self.breed(population) or self.draw_unasked()

    def breed(self, population: list[Code]) -> Code | None:
        """Return a valid child that was not asked for yet; None if TRIES children were invalid or asked for."""
        changes = 1.0  # mutations of a child on average
        for _ in range(TRIES):
            child = self.mutate(self.cross(population), changes)
            if child not in self.asked and child in self.space.valid_codes:
                return child
            changes = min(changes + 0.05, len(self.space.parameters))
        return None

    def cross(self, population: list[Code]) -> Code:
        """Return a child of one or two parents."""
        first = self.select(population)
        if self.random.random() >= CROSSOVER:
            return first
        second = self.select(population)
        from_first = self.random.random(len(first)) < 0.5
        return tuple(a if is_first else b for a, b, is_first in zip(first, second, from_first, strict=True))

    def select(self, population: list[Code]) -> Code:
        """Return the fastest of TOURNAMENT random members of the sorted population."""
        return population[int(self.random.integers(len(population), size=TOURNAMENT).min())]

    def mutate(self, code: Code, changes: float) -> Code:
        """Return the code with `changes` values changed on average."""
        child = list(code)
        for i, parameter in enumerate(self.space.parameters):
            count = len(parameter.values)
            if count < 2 or self.random.random() >= changes / len(child):
                continue
            if self.random.random() < ADJACENT:
                step = 1 if self.random.random() < 0.5 else -1
                child[i] = child[i] + step if 0 <= child[i] + step < count else child[i] - step
            else:
                child[i] = (child[i] + 1 + int(self.random.integers(count - 1))) % count
        return tuple(child)
