"""Search methods over a finite space of configurations ("points"). Each proposes points and receives their times.

GA           genetic.py      genetic algorithm: population, crossover, mutation, elitism
RL           tree.py         reinforcement learning: Monte Carlo tree search with a network trained online (network.py)
RL,GA        combined.py     RL first, then GA from the times of RL
random       unguided.py     points in random order
exhaustive   unguided.py     all points in the order of the space
"""

from __future__ import annotations

from collections.abc import Sequence

from viaduct.errors import UnknownName
from viaduct.search_space import Point, Space
from viaduct.tuning.search.base import Searcher
from viaduct.tuning.search.combined import CombinedSearcher
from viaduct.tuning.search.genetic import GeneticSearcher
from viaduct.tuning.search.tree import TreeSearcher
from viaduct.tuning.search.unguided import ExhaustiveSearcher, UniformSearcher

__all__ = ["MODES", "Searcher", "make_searcher"]

MODES: dict[str, type[Searcher]] = {
    "GA": GeneticSearcher,
    "RL": TreeSearcher,
    "RL,GA": CombinedSearcher,
    "random": UniformSearcher,
    "exhaustive": ExhaustiveSearcher,
}


def make_searcher(
    mode: str, space: Space, seed: int, budget_measurements: int | None = None, neighbours: Sequence[Point] = ()
) -> Searcher:
    """Return a searcher of this mode.

    `budget_measurements` is the largest number of points to propose (None: all). `neighbours` are good points of
    similar operators in the bank; they need not be points of this space.
    """
    aliases = {name.lower(): name for name in MODES} | {"ga,rl": "RL,GA", "ga|rl": "RL,GA", "rl|ga": "RL,GA"}
    name = aliases.get(mode.replace(" ", "").lower())
    if name is None:
        raise UnknownName("search mode", mode, MODES)
    return MODES[name](space, seed, budget_measurements, neighbours)
