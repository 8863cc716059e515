"""`viaduct launch` and a run that was killed, on a real card: over NCCL, and to the same bytes with --deterministic."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
]
RECIPE = """
import time
from torch import nn
from viaduct.recipes import Checkpoint, Cosine, Evaluation, Log, Precision, Recipe, Sgd, Shapes
from viaduct.training import Callback

class Slowly(Callback):
    def step(self, training):
        time.sleep(0.01)

def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.3),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, classes),
    )

recipe = Recipe(
    model=network,
    data=Shapes(global_batch=32, size=16, train_images=640, validation_images=64, pad=2, flip=True),
    optimizer=Sgd(lr=0.05, weight_decay=1e-4),
    schedule=Cosine(warmup_epochs=1),
    epochs=8,
    evaluation=Evaluation(every_epochs=2),
    checkpoint=Checkpoint(every_steps=16, keep=2),
    log=Log(every_steps=8),
    precision=Precision("bf16"),
    callbacks=(Slowly(),),
)
"""
ENOUGH_S = 240.0


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(RECIPE)
    return path


def start(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "viaduct", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def run_to_end(*words: str | Path, **environment: str) -> str:
    process = start(*words, **environment)
    output, _ = process.communicate(timeout=ENOUGH_S)
    assert process.returncode == 0, output
    return output


def kill_after(process: subprocess.Popen[str], checkpoint: Path) -> None:
    """Kill the command and its ranks as soon as there is a checkpoint."""
    end = time.monotonic() + ENOUGH_S
    while not checkpoint.is_dir() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_a_launched_rank_trains_over_nccl_as_a_run_without_ranks_does(recipe: Path, tmp_path: Path) -> None:
    alone, ranked = tmp_path / "alone", tmp_path / "ranked"
    run_to_end("train", recipe, "--run", alone, "--device", "cuda", "--deterministic")
    train = ("train", recipe, "--run", ranked, "--device", "cuda", "--deterministic")
    output = run_to_end("launch", "--ranks", "1", "--", *train, NCCL_DEBUG="VERSION")
    assert "NCCL version" in output
    assert weights(ranked) == weights(alone)


def test_the_ranks_of_train_speak_nccl_too(recipe: Path, tmp_path: Path) -> None:
    words = ("train", recipe, "--run", tmp_path / "run", "--device", "cuda", "--ranks", "1")
    assert "NCCL version" in run_to_end(*words, NCCL_DEBUG="VERSION")


@pytest.mark.parametrize("more", [(), ("--sink", "8"), ("--mode", "graph")], ids=["host", "sink", "graph"])
def test_a_killed_run_continues_to_the_same_bytes(recipe: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    single, parts = tmp_path / "whole", tmp_path / "parts"
    common = ("--device", "cuda", "--deterministic", *more)
    run_to_end("train", recipe, "--run", single, *common)
    kill_after(start("train", recipe, "--run", parts, *common), parts / "checkpoints" / "step-32")
    assert not (parts / "model.safetensors").exists()
    assert "Continuing from" in run_to_end("train", recipe, "--run", parts, *common)
    assert weights(parts) == weights(single)
