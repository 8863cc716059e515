"""What a session leaves when it ends, finished or stopped."""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from training.tiny_runs import After, change_part
from training.tiny_sessions import TINY, read_stderr, run_recipe
from viaduct.data.batches import Batch
from viaduct.errors import BadData, Diverged
from viaduct.recipes import Log
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.distributed import Group
from viaduct.training.finishing import print_resume_command
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir


@pytest.fixture(autouse=True)
def a_stored_recipe_can_be_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def test_what_was_learned_before_an_image_that_cannot_be_read_is_kept(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Training.iterate_batches

    def spoil_fourth_batch(training: Training) -> Iterator[Batch]:
        for number, batch in enumerate(usual(training)):
            if number == 3:
                raise BadData("train-00000-of-00001: record 7 at byte 0: the JPEG cannot be decoded.")
            yield batch

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Training, "iterate_batches", spoil_fourth_batch)
        with pytest.raises(BadData, match="record 7"):
            run_recipe(run)
    printed = read_stderr(capsys)
    assert "Stopped after step 3 of" in printed
    assert f"  viaduct train --run {run.path}" in printed
    assert list_checkpoints(run.checkpoints)[-1].step == 3
    assert run_recipe(run) == "finished"


def test_the_command_that_continues_a_run_can_be_pasted() -> None:
    notes: list[str] = []
    stopped: Any = SimpleNamespace(
        step=1, steps=2, run=RunDir(Path("my runs/try 1")), group=Group(), print_note=notes.append
    )
    print_resume_command(stopped)
    assert notes[-1] == "  viaduct train --run 'my runs/try 1'"


def test_a_run_that_diverges_leaves_its_page(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Diverged):
        run_recipe(run, change_part(replace(TINY, log=Log(every_steps=1)), "optimizer", lr=1e38))
    assert "the loss became" in run.report.read_text()
    assert run.read_summary() is None
    assert f"Report so far: {run.report}" in read_stderr(capsys)


def test_a_run_that_was_stopped_leaves_its_page_and_goes_on(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    stop = After(3, lambda training: os.kill(os.getpid(), signal.SIGTERM))
    assert run_recipe(run, replace(TINY, callbacks=(stop,))) == "interrupted"
    page = run.report.read_text()
    assert "SIGTERM" in page
    assert "after step 3 of 10" in page
    assert f"Report so far: {run.report}" in read_stderr(capsys)
    assert run_recipe(run) == "finished"
    assert "Stopped after step" not in run.report.read_text()


def test_a_page_that_cannot_be_written_does_not_hide_why_a_run_ended(run: RunDir, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("viaduct.training.finishing.write_report", full)
    with pytest.raises(Diverged):
        run_recipe(run, change_part(replace(TINY, log=Log(every_steps=1)), "optimizer", lr=1e38))


def test_bad_weights_stop_a_run_though_the_loss_is_still_finite(run: RunDir) -> None:
    def poison(training: Training) -> None:
        with torch.no_grad():
            next(training.model.parameters())[0, 0, 0, 0] = math.nan
        setattr(training, "objective", lambda logits, *rest: 0 * torch.nan_to_num(logits).sum() + 1.0)  # noqa: B010

    with pytest.raises(Diverged, match="became nan at step"):
        run_recipe(run, replace(TINY, callbacks=(After(3, poison),)))
