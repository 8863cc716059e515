"""Ctrl-C while a run compiles, which may take minutes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from forked_viaduct import start_viaduct
from viaduct.training.interrupt import Interrupt

RECIPE = """
import time
import torch
from torch import nn
from viaduct.recipes import Recipe, Sgd, Shapes

def slow(graph, inputs):
    print("compiling", flush=True)
    time.sleep(1)
    return graph

usual = torch.compile
torch.compile = lambda work, **options: usual(work, backend=slow, dynamic=False)

def network(classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 14 * 14, classes))

recipe = Recipe(
    model=network,
    data=Shapes(global_batch=8, size=16, train_images=64, validation_images=16),
    optimizer=Sgd(lr=0.01),
    mode="graph",
)
"""


@pytest.mark.parametrize(
    ("compiling", "message"),
    [(False, "Ending after this step"), (True, "Ending when the network is compiled and this step is done")],
)
def test_it_says_when_the_run_will_end(compiling: bool, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Interrupt() as interrupt:
        interrupt.is_compiling = lambda: compiling
        os.kill(os.getpid(), signal.SIGINT)
    printed = capsys.readouterr().err
    assert printed == f"\n{message}, with a checkpoint. Ctrl-C once more ends at once.\n"
    assert interrupt.received == signal.SIGINT


def test_no_checkpoint_is_announced_where_none_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with Interrupt(saves=False):
        os.kill(os.getpid(), signal.SIGINT)
    assert capsys.readouterr().err == "\nEnding after this step. Ctrl-C once more ends at once.\n"


def test_a_run_that_compiles_ends_after_its_first_step(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE)
    with start_viaduct("train", tmp_path / "mine.py", "--device", "cpu", "--run", tmp_path / "run") as run:
        run.wait_for(lambda text: "compiling" in text)
        os.kill(run.pid, signal.SIGINT)
        _, stderr = run.communicate()
    assert run.returncode == 130
    assert "Ending when the network is compiled and this step is done, with a checkpoint." in stderr
    assert "Stopped after step 1 of" in stderr
    assert (tmp_path / "run" / "checkpoints" / "step-1").is_dir()
