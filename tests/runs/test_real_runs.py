"""Runs that `viaduct train` has really made: their states while they go on and after they ended, and their origin."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from forked_viaduct import Command, start_viaduct, viaduct
from viaduct.runs.facts import RunFacts
from viaduct.runs.lineage import render_tree, trace_lineage
from viaduct.runs.listing import list_runs, open_run

RECIPE = """
import numpy as np
import time
from torch import nn
from viaduct.recipes import Arrays, Checkpoint, ImageSet, Log, Recipe, Sgd, Split
from viaduct.training import Callback

class Slowly(Callback):
    def step(self, training):
        time.sleep(0.01)

def split(count):
    labels = np.arange(count, dtype=np.int64) % 2
    return Split(np.full((count, 8, 8, 3), 60, np.uint8) * labels[:, None, None, None].astype(np.uint8), labels)

def make(path):
    return ImageSet(split(8), split(4), ("dark", "light"))

def network(classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))

recipe = Recipe(
    model=network, data=Arrays(global_batch=4, size=8, classes=2, make=make), optimizer=Sgd(lr=0.01), steps=5000,
    log=Log(every_steps=1), checkpoint=Checkpoint(every_steps=2, keep=2), callbacks=(Slowly(),),
)
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.py"
    file.write_text(RECIPE)
    return file


def train(recipe: Path, *words: str) -> None:
    made = viaduct("train", recipe, "--device", "cpu", *words, cwd=recipe.parent)
    assert made.returncode == 0, made.stderr


def wait_for_steps(run: Path, command: Command) -> RunFacts:
    end = time.monotonic() + 120
    while not (run / "metrics.jsonl").is_file() or open_run(run).steps < 3:
        assert command.returncode is None, command.stderr.read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
    return open_run(run)


@pytest.mark.parametrize(
    ("number", "state", "reason"),
    [(signal.SIGTERM, "interrupted", "SIGTERM"), (signal.SIGKILL, "crashed", "SIGKILL")],
)
def test_a_run_is_running_until_it_is_stopped_or_killed(
    recipe: Path, number: signal.Signals, state: str, reason: str
) -> None:
    run = recipe.parent / "run"
    with start_viaduct("train", recipe, "--device", "cpu", "--run", run, cwd=recipe.parent) as command:
        found = wait_for_steps(run, command)
        assert (found.state, found.reason) == ("running", f"process {command.pid} on {os.uname().nodename}")
        os.kill(command.pid, number)
        command.communicate(120)
    found = open_run(run)
    assert found.state == state
    assert reason in found.reason
    assert found.steps >= 3


def test_a_loss_that_diverges_is_the_reason_of_a_crash_until_the_run_goes_on(recipe: Path) -> None:
    run = recipe.parent / "run"
    failed = viaduct(
        "train", recipe, "--device", "cpu", "--run", run, "--lr", "1e30", "--steps", "50", cwd=recipe.parent
    )
    assert failed.returncode == 2
    found = open_run(run)
    assert found.state == "crashed"
    assert "the loss became" in found.reason
    assert json.loads((run / "ending.json").read_text())["outcome"] == "failed"
    train(recipe, "--run", "other", "--steps", "2")
    assert not (recipe.parent / "other" / "ending.json").exists()


def test_the_origin_of_a_run_is_recorded_when_it_begins_and_kept_when_it_goes_on(recipe: Path) -> None:
    folder = recipe.parent
    train(recipe, "--run", "base", "--steps", "2")
    train(recipe, "--run", "tuned", "--steps", "2", "--init", "base")
    first = json.loads((folder / "tuned" / "recipe.json").read_text())["provenance"]
    train(recipe, "--run", "tuned", "--steps", "4", "--init", "base")
    after = json.loads((folder / "tuned" / "recipe.json").read_text())["provenance"]
    assert (after["id"], after["init"]) == (first["id"], first["init"])
    assert [session["step"] for session in after["sessions"]] == [0, 2]
    base = open_run(folder / "base")
    assert (first["init"]["run_id"], first["init"]["step"]) == (base.id, 2)
    assert (base.fingerprint_basis, base.source is not None) == ("every pixel; all labels", True)
    (folder / "base").rename(folder / "moved")
    tree = render_tree(trace_lineage(open_run(folder / "tuned"), list_runs([folder]).runs))
    assert str(folder / "moved") in tree
    assert "found by its id" in tree


def test_a_run_from_before_origins_were_recorded_goes_on(recipe: Path) -> None:
    run = recipe.parent / "run"
    train(recipe, "--run", "run", "--steps", "2")
    record = json.loads((run / "recipe.json").read_text())
    del record["provenance"]
    (run / "recipe.json").write_text(json.dumps(record))
    train(recipe, "--run", "run", "--steps", "4")
    found = open_run(run)
    assert (found.state, found.steps, found.sessions) == ("finished", 4, 1)
    assert "init" not in json.loads((run / "recipe.json").read_text())["provenance"]
