"""Profiling the training in this process: which files exist, and when."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from viaduct.profiling.collector import Plan
from viaduct.profiling.script_job import FINISHED_FILE, STEPS_FILE, ScriptJob
from viaduct.profiling.session import Session, describe_device, find_rank_and_size


class Stopped(Exception):
    pass


def stop() -> None:
    raise Stopped


@pytest.fixture
def job(tmp_path: Path) -> ScriptJob:
    return ScriptJob("train.py", (), False, str(tmp_path), str(tmp_path), Plan(1, 3, 0))


def train(steps: int) -> None:
    network = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.ones(8, 4)).sum().backward()
        optimizer.step()


def read_log(job: ScriptJob) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (Path(job.record_folder) / str(os.getpid()) / STEPS_FILE).read_text().splitlines()
    ]


def test_a_process_that_does_not_train_leaves_no_folder(job: ScriptJob) -> None:
    with Session(job, stop) as session:
        with torch.no_grad():
            nn.Linear(4, 2)(torch.ones(1, 4))
        session.finish()
    assert list(Path(job.record_folder).iterdir()) == []


def test_a_forked_process_does_not_write_what_its_parent_trained(
    job: ScriptJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(job, stop) as session:
        train(2)
    monkeypatch.setattr(session, "_process", os.getpid() + 1)
    session.finish()
    assert not list(Path(job.record_folder).rglob(FINISHED_FILE))


def test_steps_are_on_the_disk_before_the_training_ends(job: ScriptJob) -> None:
    with Session(job, stop):
        train(3)
        log = read_log(job)
    steps = [line for line in log if line["kind"] == "step"]
    assert [(line["part"], line["step"]["number"]) for line in steps] == [("skip", 0), ("timed", 1), ("timed", 2)]
    facts = [line["facts"] for line in log if line["kind"] == "facts"]
    assert (facts[-1]["batch"], facts[-1]["device"], facts[-1]["precision"]) == (8, "cpu", "float32")
    assert facts[-1]["phases_found_by"], "how the end of a step is found is known after the first one"


def test_the_script_is_ended_after_its_last_step_and_the_profile_is_whole(job: ScriptJob) -> None:
    with Session(job, stop) as session, pytest.raises(Stopped):
        train(99)
    session.finish()  # does not write again
    profile, _, done = pickle.loads((session.open_folder() / FINISHED_FILE).read_bytes())
    assert done
    assert [step.number for step in profile.steps] == [1, 2, 3]
    assert (profile.facts.source, profile.facts.warmup_steps, profile.facts.timed_steps) == ("train.py", 1, 3)


def test_the_rank_is_that_of_the_environment_where_there_is_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "RANK_ID", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert find_rank_and_size() == (0, 1)
    monkeypatch.setenv("RANK_ID", "3")
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert find_rank_and_size() == (3, 1)
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert find_rank_and_size() == (5, 8)


def test_a_device_that_cannot_be_used_has_no_description() -> None:
    assert describe_device("cpu")
    assert describe_device("no such device") == ""
