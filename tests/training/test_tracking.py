"""Trackers: what they are sent, that a resumed run goes on in the same place, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from training.tiny_runs import RECIPE, train_recipe
from viaduct.errors import BadValue
from viaduct.recipes import Log
from viaduct.training.rundir import RunDir
from viaduct.training.tracking import build_trackers

RECORDED = replace(RECIPE, log=Log(every_steps=1, track="mlflow, tensorboard"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A package in the place of MLflow that notes what it is asked to do."""
    found: list[tuple[Any, ...]] = []
    package: Any = ModuleType("mlflow")

    def start_run(run_id: str | None = None, run_name: str | None = None) -> Any:
        found.append(("start", run_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "abc"))

    package.start_run = start_run
    package.log_params = lambda values: found.append(("params", values))
    package.log_metrics = lambda values, step: found.append(("metrics", values, step))
    package.end_run = lambda status: found.append(("end", status))
    monkeypatch.setitem(sys.modules, "mlflow", package)
    return found


def test_a_run_sends_its_recipe_its_losses_and_its_evaluations(calls: list[tuple[Any, ...]], run: RunDir) -> None:
    train_recipe(RECORDED, run, *build_trackers(RECORDED))
    assert calls[0] == ("start", None, "run")
    assert calls[1][1]["data.global_batch"] == str(RECIPE.data.global_batch)
    assert calls[-1] == ("end", "FINISHED")
    sent = [call for call in calls if call[0] == "metrics"]
    losses = [call[2] for call in sent if "train/loss" in call[1]]
    assert losses == sorted(set(losses))
    assert losses
    assert any("validation/top1" in call[1] for call in sent)
    assert json.loads((run.path / "tracking.json").read_text()) == {"mlflow": "abc"}


def test_a_resumed_run_goes_on_in_the_same_place(calls: list[tuple[Any, ...]], run: RunDir) -> None:
    (run.path / "tracking.json").write_text('{"mlflow": "earlier"}')
    for step, expected in ((3, "earlier"), (0, None)):
        (tracker,) = build_trackers(RECORDED)
        state: Any = SimpleNamespace(run=run, recipe=RECORDED, step=step)
        tracker.start(state)
        assert [call for call in calls if call[0] == "start"][-1][1] == expected
    assert len([call for call in calls if call[0] == "params"]) == 1


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_a_package_that_does_not_exist_is_refused_with_the_install_line(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(sys.modules, package)
    with pytest.raises(BadValue, match=f"pip install {package}"):
        build_trackers(replace(RECIPE, log=Log(track=package)))


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(BadValue, match=r"log.track is 'mlflo'"):
        Log(track="mlflo")
