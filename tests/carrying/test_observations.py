"""Observations of a rehearsal, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.carrying.observations import Observations, Rank, did_ranks_train_together, read_observations
from viaduct.rehearsal.inspection import FACTS_FILE, RANKS_KIND, Fact
from viaduct.rehearsal.observe import EVALUATIONS_FILE
from viaduct.rehearsal.plan import Plan


def write_rank(record: Path, number: int, steps: list[dict[str, Any]]) -> Path:
    folder = record / "observed" / f"rank-{number}"
    folder.mkdir(parents=True)
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return folder


def plan_of(record: Path) -> Plan:
    return Plan("original", "torch", "train.py", (), str(record))


def test_a_run_that_left_nothing_has_no_ranks(tmp_path: Path) -> None:
    observed = read_observations(plan_of(tmp_path))
    assert observed.ranks == []
    assert observed.first_rank == Rank(0)


def test_a_rank_without_further_files_has_losses_alone(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, [{"losses": [2.0], "lr": [0.1]}, {"losses": [1.0, 0.5], "lr": []}])
    (rank,) = read_observations(plan_of(tmp_path)).ranks
    assert rank == Rank(0, [[2.0], [1.0, 0.5]], [[0.1], []], inputs=[[], []])


def test_ranks_come_in_the_order_of_their_numbers_with_all_that_they_left(tmp_path: Path) -> None:
    for number in (10, 2):
        folder = write_rank(tmp_path, number, [{"losses": [1.0], "lr": [], "inputs": [3.5], "at": [7.0, 6.5]}])
    (folder / EVALUATIONS_FILE).write_text("[1.5]\n[2.5, 3.5]\n")
    facts = [{"kind": "optimizer", "name": "SGD", "settings": {"lr": 0.1}, "line": ["train.py", 5]}]
    facts.append({"kind": "network", "name": "Net", "settings": {}, "line": None})
    (folder / FACTS_FILE).write_text(json.dumps(facts))
    np.savez(folder / "gradients.npz", w=np.ones(2))
    observed = read_observations(plan_of(tmp_path))
    assert [rank.number for rank in observed.ranks] == [2, 10]
    first = observed.first_rank
    assert (first.inputs, first.step_ends, first.evaluations) == ([[3.5]], [(7.0, 6.5)], [[1.5], [2.5, 3.5]])
    assert first.facts == [
        Fact("optimizer", "SGD", {"lr": 0.1}, ("train.py", 5)),
        Fact("network", "Net", {}, None),
    ]
    assert (first.gradients["w"].tolist(), first.weights) == ([1.0, 1.0], {})


def test_ranks_are_joined_only_if_they_were_seen_to_train_together() -> None:
    def make_observation(together: bool) -> Observations:
        return Observations([Rank(0), Rank(1, facts=[Fact(RANKS_KIND, "", {"together": together})])])

    assert not did_ranks_train_together(Observations([Rank(0)]))
    assert not did_ranks_train_together(make_observation(False))
    assert did_ranks_train_together(make_observation(True))
