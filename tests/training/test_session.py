"""Sessions of a run, in this process; what signals and kills do is in test_survival.py."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.tiny_runs import change_part
from training.tiny_sessions import TINY, count_steps, read_stderr, run_recipe
from viaduct.recipes import Evaluation
from viaduct.training.callbacks import Callback
from viaduct.training.interrupt import Interrupt
from viaduct.training.rundir import RunDir


@pytest.fixture(autouse=True)
def a_stored_recipe_can_be_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


class Close(Callback):
    needs_every_step = True


def test_the_summary_says_how_the_steps_were_run(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    run_recipe(run, replace(TINY, sink=4, mode="eager", compile="regional", kernels="off"))
    summary = run.read_summary()
    assert summary is not None
    assert (summary["mode"], summary["compile"], summary["compiled"]) == ("eager", "regional", "off")
    assert (summary["kernels"], summary["own_kernels"]) == ("off", 0)
    assert (summary["sink"], summary["sink_on_device"]) == (4, False)
    assert summary["sink_obstacle"] == "cpu captures no graphs"
    assert summary["machine"]["threads"] == torch.get_num_threads()
    assert "--compile regional has no effect in eager mode; --mode graph compiles." in read_stderr(capsys)


def test_a_callback_that_needs_every_step_is_the_summarys_reason_for_no_sinks(run: RunDir) -> None:
    run_recipe(run, replace(TINY, sink=4, callbacks=(Close(),)))
    summary = run.read_summary()
    assert summary is not None
    assert summary["sink_obstacle"] == "a callback observes every step"


def test_a_run_without_sinks_has_no_obstacle_to_them(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    run_recipe(run, replace(TINY, sink=0, callbacks=(Close(),)))
    summary = run.read_summary()
    assert summary is not None
    assert summary["sink_obstacle"] is None
    assert "--compile" not in read_stderr(capsys)


def test_evaluating_only_leaves_the_run_as_it_was(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    run_recipe(run, replace(TINY, steps=4))
    (run.path / "summary.json").unlink()  # as if it had been stopped there
    recipe = (run.path / "recipe.json").read_text()
    run_recipe(run, replace(TINY, evaluation=Evaluation(eval_only=True)))
    assert (run.path / "recipe.json").read_text() == recipe
    assert run.read_summary() is None
    assert "Evaluating" in capsys.readouterr().out
    assert run_recipe(run) == "finished"
    assert count_steps(run) == 10


def test_an_interrupted_evaluation_says_that_it_has_no_result(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_recipe(run, replace(TINY, steps=4))
    monkeypatch.setattr(Interrupt, "get_signal", lambda self: 15)
    assert run_recipe(run, replace(TINY, evaluation=Evaluation(eval_only=True))) == "interrupted"
    error = read_stderr(capsys)
    assert "The evaluation was interrupted: it has no result." in error
    assert "Continue with" not in error


def test_the_page_says_how_often_each_class_is_seen_when_they_are_balanced(run: RunDir) -> None:
    run_recipe(run)
    assert "seen in an epoch" not in run.report.read_text()
    balanced = RunDir(run.path.with_name("balanced"))
    run_recipe(balanced, change_part(TINY, "data", balance=1.0))
    assert "seen in an epoch" in balanced.report.read_text()
