"""Seed noise: variation of a recipe's final top-1 between runs with different seeds.

The recipes and the data of these runs are equal; their code and machine are not compared. For the difference between
two runs, A and B, the noise is measured from the runs in their folders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import variance

from viaduct.errors import BadValue
from viaduct.runs.facts import RunFacts
from viaduct.runs.importance import is_bookkeeping
from viaduct.runs.listing import list_runs

MIN_SEEDS = 3  # finished seeds of one recipe that are needed for an estimate
MAX_NOISE_DEVIATIONS = 2.0  # standard deviations up to which a difference counts as seed noise


@dataclass(frozen=True)
class SeedNoise:
    """Variation of the final top-1 over seeds."""

    deviation: float  # standard deviation in percentage points
    counts: tuple[int, int]  # number of finished seeds of A and of B
    shared: bool = False  # True if recipe and data of A and B are equal, except for the seed

    def judge(self, difference: float) -> str:
        """Compare the difference between A and B, in percentage points, with the noise; return a clause."""
        noise = self.deviation * math.sqrt(2)  # the difference of two runs varies more than one run
        counts = zip("AB", self.counts, strict=True)
        source = " and ".join(f"{count} seeds of {name}" for name, count in counts if count >= MIN_SEEDS)
        if self.shared:
            source = f"{self.counts[0]} seeds of this recipe"
        measured = f"seed noise of a difference {noise:.2f} points (from {source})"
        if noise == 0:
            return f"{measured}; all seeds gave the same result, so that this says little"
        verdict = "larger than" if abs(difference) > MAX_NOISE_DEVIATIONS * noise else "within"
        return f"{measured}: {verdict} {MAX_NOISE_DEVIATIONS:g} standard deviations"


def measure_seed_noise(first: RunFacts, second: RunFacts) -> SeedNoise | None:
    """Return the seed noise from the runs in the folders of two runs; None if neither has MIN_SEEDS seeds there."""
    neighbours = list_neighbours(first, second)
    groups = [find_seeds(run, neighbours) for run in (first, second)]
    results = [[run.top1 * 100 for run in group if run.top1 is not None] for group in groups]
    shared = first.recipe == second.recipe and make_seedless_key(first) == make_seedless_key(second)
    distinct = results[:1] if shared else results  # shared: both groups are the same runs
    measured = [values for values in distinct if len(values) >= MIN_SEEDS]
    if not measured:
        return None
    return SeedNoise(pool_deviation(measured), (len(results[0]), len(results[1])), shared)


def pool_deviation(groups: list[list[float]]) -> float:
    """Return the standard deviation within groups of at least two values each, pooled over the groups."""
    degrees_of_freedom = sum(len(values) - 1 for values in groups)
    return math.sqrt(sum(variance(values) * (len(values) - 1) for values in groups) / degrees_of_freedom)


def list_neighbours(first: RunFacts, second: RunFacts) -> list[RunFacts]:
    """Return the runs below the folders that contain two runs, including these."""
    folders = dict.fromkeys(Path(run.path).absolute().parent for run in (first, second))
    try:
        return list_runs(list(folders)).runs
    except BadValue:  # a folder without permission to list it may contain readable runs
        return []


def find_seeds(run: RunFacts, neighbours: Iterable[RunFacts]) -> list[RunFacts]:
    """Return a finished run for each seed of a run's recipe and data; for its own seed, the run itself if finished."""
    key = make_seedless_key(run)
    by_seed = {}
    for other in [*neighbours, run]:
        if other.is_complete and other.recipe == run.recipe and make_seedless_key(other) == key:
            by_seed[str(other.seed)] = other
    return list(by_seed.values())


def make_seedless_key(run: RunFacts) -> tuple[object, ...]:
    """Return a key of a run's data and the fields of its recipe, without seed and bookkeeping."""
    fields = {name: value for name, value in run.fields.items() if name != "seed" and not is_bookkeeping(name)}
    return run.fingerprint, run.images, sorted((name, repr(value)) for name, value in fields.items())
