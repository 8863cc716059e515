"""Runs that are interrupted and continued on a real card: the same bits with --deterministic, captured or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.test_loop import resume_training
from training.tiny_runs import (
    RECIPE,
    build_dropout_network,
    build_normed_network,
    build_training,
    copy_weights,
    train_recipe,
)
from viaduct.recipes import Recipe
from viaduct.training.callbacks import Checkpointing
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.rundir import RunDir

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
STOP = 11  # within an epoch of five steps, and within a sink of eight


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VIADUCT_TEST_DEVICE", "cuda")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("sink", [0, 8, "auto"])
@pytest.mark.parametrize("model", [build_normed_network, build_dropout_network])
def test_a_deterministic_run_that_was_interrupted_ends_with_the_same_bits(
    tmp_path: Path, model: object, sink: object
) -> None:
    recipe: Recipe = replace(RECIPE, model=model, deterministic=True, epochs=4, sink=sink)  # type: ignore[arg-type]
    uninterrupted = train_recipe(recipe, RunDir(tmp_path / "whole"), Checkpointing())
    run = RunDir(tmp_path / "parts")
    first = build_training(recipe, run, Checkpointing(), read_signal=lambda: first.step >= STOP)
    with first.train_batches, first.validation:
        assert first.fit() == "interrupted"
    again = copy_weights(resume_training(recipe, run, list_checkpoints(run.checkpoints)[-1]))
    for name, tensor in copy_weights(uninterrupted).items():
        assert torch.equal(again[name], tensor), name
