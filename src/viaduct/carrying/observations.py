"""What a run recorded of each rank (rehearsal/observe.py): losses, gradients, weights, facts about its objects."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from viaduct.rehearsal.inspection import FACTS_FILE, RANKS_KIND, Fact
from viaduct.rehearsal.observe import EVALUATIONS_FILE, find_rank_folder
from viaduct.rehearsal.plan import Plan

Arrays = dict[str, NDArray[Any]]


class StepEnd(NamedTuple):
    """Times at which a step ended, in seconds."""

    clock: float  # of a monotonic clock
    processor: float  # processor time of the process


@dataclass(frozen=True)
class Rank:
    """Observations of one rank. `losses`, `learning_rates` and `inputs` have a list of values for each step."""

    number: int
    losses: list[list[float]] = field(default_factory=list)
    learning_rates: list[list[float]] = field(default_factory=list)
    gradients: Arrays = field(default_factory=dict)  # of the first step
    weights: Arrays = field(default_factory=dict)  # at the end
    facts: list[Fact] = field(default_factory=list)  # objects of the script (modules, optimizers …) and their settings
    # Two sums for each tensor, a weighted one and one of magnitudes (rehearsal/observe.py).
    evaluations: list[list[float]] = field(default_factory=list)  # of the outputs of each pass without gradients
    inputs: list[list[float]] = field(default_factory=list)  # of the inputs of networks
    step_ends: list[StepEnd] = field(default_factory=list)


@dataclass(frozen=True)
class Observations:
    """Observations of a run."""

    ranks: list[Rank]  # those that recorded anything, by number

    @property
    def first_rank(self) -> Rank:
        """Return the observed rank with the lowest number, or an empty Rank 0 if there is none."""
        return self.ranks[0] if self.ranks else Rank(0)


def did_ranks_train_together(observations: Observations) -> bool:
    """Return True if any rank trained together with others, not alone."""
    facts = (fact for rank in observations.ranks for fact in rank.facts)
    return any(fact.kind == RANKS_KIND and fact.settings["together"] for fact in facts)


def has_newly_joined_ranks(original: Observations, migrated: Observations) -> bool:
    """Return True if ranks train together on the migrated side only."""
    return did_ranks_train_together(migrated) and not did_ranks_train_together(original)


def read_observations(plan: Plan) -> Observations:
    folders = (Path(plan.record_folder) / "observed").glob("rank-*")
    numbers = sorted(int(path.name.removeprefix("rank-")) for path in folders)
    return Observations([read_rank(find_rank_folder(plan.record_folder, number), number) for number in numbers])


def read_rank(folder: Path, number: int) -> Rank:
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    evaluated = folder / EVALUATIONS_FILE
    evaluations = evaluated.read_text().splitlines() if evaluated.exists() else []
    facts = json.loads((folder / FACTS_FILE).read_text()) if (folder / FACTS_FILE).exists() else []
    return Rank(
        number,
        losses=[line["losses"] for line in lines],
        learning_rates=[line["lr"] for line in lines],
        gradients=load_arrays(folder / "gradients.npz"),
        weights=load_arrays(folder / "weights.npz"),
        facts=[Fact(**{**fact, "line": tuple(fact["line"]) if fact["line"] else None}) for fact in facts],
        evaluations=[json.loads(line) for line in evaluations],
        inputs=[line.get("inputs", []) for line in lines],
        step_ends=[StepEnd(*line["at"]) for line in lines if "at" in line],
    )


def load_arrays(path: Path) -> Arrays:
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
