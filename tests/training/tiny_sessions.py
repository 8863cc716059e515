"""Whole sessions of a tiny recipe, in this process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training.tiny_runs import RECIPE
from viaduct.recipes import Checkpoint, LoadedRecipe, Log, Recipe
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import run_training

TINY = replace(RECIPE, log=Log(every_steps=5), checkpoint=Checkpoint(every_steps=2, every_minutes=0, keep_best=False))


def run_recipe(run: RunDir, recipe: Recipe = TINY, resume: str = "auto") -> str:
    """Train in a session, and return `finished` or `interrupted`."""
    request = TrainingRequest(
        LoadedRecipe("tiny", recipe, "Tiny.", None), run, None, "cpu", resume, "viaduct train tiny"
    )
    return "finished" if run_training(request).finished else "interrupted"


def read_stderr(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def count_steps(run: RunDir) -> int:
    summary = run.read_summary()
    assert summary is not None
    return int(summary["steps"])
