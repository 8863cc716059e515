"""The runs below a folder, with and without an index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runs.sample_runs import make_run
from viaduct.errors import BadRun, BadValue
from viaduct.runs.listing import list_runs, open_run, require_runs
from viaduct.runs.table import render_damage


def test_a_run_that_grew_has_its_new_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", done=100, finished=False)
    assert list_runs([tmp_path]).runs[0].steps == 100
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "evaluation", "step": 110, "top1": 0.97, "loss": 0.1}\n')
    found = list_runs([tmp_path]).runs[0]
    assert (found.steps, found.best_top1) == (110, 0.97)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it is empty"), (b"[]", "it holds a list"), (b'{"dependencies": {}}', "name is missing")],
)
def test_a_damaged_or_foreign_recipe_is_named_and_not_listed(tmp_path: Path, content: bytes, reason: str) -> None:
    make_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.json").write_bytes(content)
    found = list_runs([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert [os.path.basename(problem.path) for problem in found.problems] == ["bad"]
    assert reason in found.problems[0].reason


def test_the_newest_run_comes_first(tmp_path: Path) -> None:
    for age, name in enumerate("abc"):
        os.utime(make_run(tmp_path / name) / "metrics.jsonl", (1000 - age, 1000 - age))
    os.utime(tmp_path / "b" / "metrics.jsonl", (5000, 5000))
    assert [run.name for run in list_runs([tmp_path]).runs] == ["b", "a", "c"]


def test_no_runs_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no run was found in"):
        require_runs(list_runs([tmp_path]), [tmp_path])


def test_a_path_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadValue, match="is a file, not a run"):
        open_run(tmp_path / "file")
    with pytest.raises(BadRun, match=r"it has no recipe\.json"):
        open_run(tmp_path)


def test_a_finished_run_without_weights_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    assert render_damage(list_runs([tmp_path]).runs, show_all=False) == ""
    (run / "model.safetensors").unlink()
    assert "neither model.safetensors nor checkpoints" in render_damage(list_runs([tmp_path]).runs, show_all=False)
