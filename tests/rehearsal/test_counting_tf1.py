"""Records of a TensorFlow 1 script's counter, from the calls of its sessions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from rehearsal.plans import make_plan
from viaduct.rehearsal.counting_tf1 import GraphStepCounter
from viaduct.rehearsal.observe import EVALUATIONS_FILE, find_rank_folder
from viaduct.rehearsal.progress import read_notes
from viaduct.rehearsal.tf1_stage import collectives, sessions


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GraphStepCounter:
    """Return a counter after two steps, the second without a loss, made without TensorFlow."""
    monkeypatch.setattr(collectives, "has_exchanged", lambda: True)
    monkeypatch.setattr(sessions, "report_open_sessions", lambda: (tmp_path / "sessions checked").touch())
    for name in ("RANK", "RANK_ID"):
        monkeypatch.delenv(name, raising=False)
    counter = object.__new__(GraphStepCounter)
    counter.plan = make_plan(tmp_path)
    counter.script_watch = SimpleNamespace(  # type: ignore[assignment]
        steps=2,
        losses=[2.5, None],
        end_times=[(1.0, 0.5), (2.0, 1.0)],
        first_gradients={"w": numpy.ones(2)},
        last_variables={"w": numpy.zeros(2)},
        stop_requested_at=None,
        store_last_variables=lambda: None,
    )
    counter.inspection = None
    counter.evaluations = SimpleNamespace(fingerprints=[[1.0, 2.0]])  # type: ignore[assignment]
    counter.profiling_points = SimpleNamespace(write=lambda record: (record / "points").touch())  # type: ignore[assignment]
    return counter


def test_a_script_without_a_step_leaves_nothing(counter: GraphStepCounter, tmp_path: Path) -> None:
    counter.script_watch.steps = 0
    counter.write_observations()
    counter.finish(ran_to_end=False)
    assert list((tmp_path / "record").iterdir()) == []


def test_a_script_that_was_stopped_is_not_blamed_for_open_sessions(counter: GraphStepCounter, tmp_path: Path) -> None:
    counter.finish(ran_to_end=False)
    assert not (tmp_path / "sessions checked").exists()
    counter.finish(ran_to_end=True)
    assert (tmp_path / "sessions checked").exists()


def test_losses_gradients_and_weights_are_written_as_for_pytorch(counter: GraphStepCounter, tmp_path: Path) -> None:
    counter.finish(ran_to_end=True)
    folder = find_rank_folder(tmp_path / "record", 0)
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert [(step["step"], step["losses"]) for step in steps] == [(0, [2.5]), (1, [])]
    assert numpy.load(folder / "gradients.npz")["w"].tolist() == [1, 1]
    assert numpy.load(folder / "weights.npz")["w"].tolist() == [0, 0]
    assert not (folder / EVALUATIONS_FILE).exists()
    assert [note["steps"] for note in read_notes(tmp_path / "record", "steps").values()] == [2]
    assert (tmp_path / "record" / "points").exists()


def test_facts_say_if_the_ranks_exchange_values(counter: GraphStepCounter, tmp_path: Path) -> None:
    counter.inspection = SimpleNamespace(facts=[])  # type: ignore[assignment]
    counter.write_observations()
    folder = find_rank_folder(tmp_path / "record", 0)
    assert json.loads((folder / "facts.json").read_text())[0]["settings"] == {"together": True}
    assert (folder / EVALUATIONS_FILE).read_text() == "[1.0, 2.0]\n"


def test_without_observations_only_the_number_of_steps_is_written(counter: GraphStepCounter, tmp_path: Path) -> None:
    counter.plan = replace(counter.plan, observe=False)
    counter.finish(ran_to_end=True)
    assert not find_rank_folder(tmp_path / "record", 0).exists()
    assert counter.step_count == 2
