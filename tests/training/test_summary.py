"""summary.json: the figures of a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from training.tiny_runs import RECIPE, build_plain_network, train_recipe
from viaduct import __version__
from viaduct.recipes import LoadedRecipe
from viaduct.repository import UnreadableRepository
from viaduct.training import summary
from viaduct.training.callbacks import MetricsFile
from viaduct.training.rundir import RunDir
from viaduct.training.summary import read_commit, summarise


def test_a_tree_without_history_is_named_by_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise UnreadableRepository("no repository")

    monkeypatch.delenv("VIADUCT_COMMIT", raising=False)
    monkeypatch.setattr(summary, "open_repository", refuse)
    assert read_commit() == f"viaduct {__version__}"
    monkeypatch.setenv("VIADUCT_COMMIT", "0123abc")
    assert read_commit() == "0123abc"


def test_the_speed_leaves_the_first_window_out_and_everything_is_json(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = train_recipe(replace(RECIPE, epochs=1), run, MetricsFile())
    records = run.read_records("log")
    for record, speed in zip(records, (1.0, 30.0, 50.0, 40.0, 10.0), strict=True):
        record["images_per_s"] = speed
    others = {kind: run.read_records(kind) for kind in ("evaluation", "restart")}
    monkeypatch.setattr(RunDir, "read_records", lambda self, kind: records if kind == "log" else others[kind])
    result = summarise(LoadedRecipe("tiny", RECIPE, "Tiny.", None), done, "viaduct train tiny")
    assert json.loads(json.dumps(result)) == result
    assert result["images_per_s"] == 35.0
    assert (result["steps"], result["epochs"], result["ranks"], result["global_batch"]) == (5, 1.0, 1, 8)
    assert result["parameters"] == sum(parameter.numel() for parameter in build_plain_network(4).parameters())
    assert (result["parallel"], result["mode"]) == ("data", "eager")
    assert (result["sink_length"], result["sink_on_device"]) == (0, False)
    assert done.score is not None
    assert result["final"]["top1"] == done.score.top1
    assert result["samples"]["images_per_s"] == [1.0, 30.0, 50.0, 40.0, 10.0]


def test_a_run_without_a_log_line_has_no_speed_and_no_score(run: RunDir) -> None:
    done = train_recipe(replace(RECIPE, steps=0, epochs=1), run)
    result = summarise(LoadedRecipe("tiny", RECIPE, "Tiny.", None), done, "")
    assert result["images_per_s"] is None
    assert result["samples"]["images_per_s"] == []
