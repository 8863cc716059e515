"""How runs begin and continue, in this process."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from training.tiny_runs import change_part, make_images, make_split
from training.tiny_sessions import TINY, count_steps, read_stderr, run_recipe
from viaduct.errors import BadRun, Diverged
from viaduct.recipes import Checkpoint, Ema, Evaluation, Log
from viaduct.training.rundir import RunDir


@pytest.fixture(autouse=True)
def a_stored_recipe_can_be_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def test_nothing_is_touched_in_a_folder_that_is_no_run(run: RunDir) -> None:
    run.path.mkdir()
    (run.path / "thesis.tex").write_text("precious")
    with pytest.raises(BadRun, match="is not empty and holds no run"):
        run_recipe(run)
    assert [path.name for path in run.path.iterdir()] == ["thesis.tex"]


def test_nothing_is_written_where_there_is_nothing_to_resume(run: RunDir) -> None:
    with pytest.raises(BadRun, match=r"there is no run in .* to resume"):
        run_recipe(run, resume="must")
    with pytest.raises(BadRun, match=r"there is no run in .* to evaluate"):
        run_recipe(run, replace(TINY, evaluation=Evaluation(eval_only=True)))
    assert not run.path.exists()


def test_a_run_that_has_no_checkpoint_is_not_said_to_have_lost_one(run: RunDir) -> None:
    run_recipe(run)
    shutil.rmtree(run.checkpoints)
    (run.path / "summary.json").unlink()
    with pytest.raises(BadRun, match="there is no checkpoint in"):
        run_recipe(run, resume="must")


def test_a_finished_run_is_whole_and_is_left_alone(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_recipe(run) == "finished"
    assert "Finished: validation top-1" in read_stderr(capsys)
    names = {path.name for path in run.path.iterdir()}
    assert {"recipe.json", "metrics.jsonl", "log.txt", "model.safetensors", "summary.json", "report.html"} <= names
    assert run.model.read_bytes() == (run.checkpoints / "step-10" / "model.safetensors").read_bytes()
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert run_recipe(run) == "finished"
    printed = read_stderr(capsys)
    assert "has finished already" in printed
    assert "A larger --steps or --epochs continues it." in printed
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    with pytest.raises(BadRun, match="holds a run already"):
        run_recipe(run, resume="never")


@pytest.mark.parametrize("name", ["model.safetensors", "ema.safetensors", "report.html"])
def test_a_removed_file_of_a_finished_run_is_written_again(run: RunDir, name: str) -> None:
    recipe = replace(TINY, ema=Ema(0.9))
    run_recipe(run, recipe)
    (run.path / name).unlink()
    assert run_recipe(run, recipe) == "finished"
    assert (run.path / name).is_file()


@pytest.mark.parametrize(
    ("first", "then", "steps"),
    [
        ({"steps": 4}, {}, 10),  # a trial of a few steps, then the recipe itself
        ({"steps": 4}, {"steps": 6}, 6),
        ({"epochs": 1}, {"epochs": 2}, 10),
        ({"epochs": 1}, {"steps": 7}, 7),
        ({"epochs": 2}, {"steps": 7}, 10),
        ({"epochs": 2}, {"epochs": 1}, 10),
        ({"steps": 6}, {"steps": 4}, 6),
    ],
)
def test_a_finished_run_goes_on_only_if_it_is_requested_more(
    run: RunDir, first: dict[str, int], then: dict[str, int], steps: int
) -> None:
    run_recipe(run, replace(TINY, **first))
    assert run_recipe(run, replace(TINY, **then)) == "finished"
    assert count_steps(run) == steps
    assert run.model.read_bytes() == (run.checkpoints / f"step-{steps}" / "model.safetensors").read_bytes()


def test_an_unfinished_run_is_not_finished_by_asking_for_less(run: RunDir) -> None:
    run_recipe(run, replace(TINY, steps=6))
    (run.path / "summary.json").unlink()  # as if it had been stopped on its way to 10
    before = (run.path / "recipe.json").read_bytes()
    with pytest.raises(BadRun, match=r"6 steps are done already in .*, more than the 4 now asked for"):
        run_recipe(run, replace(TINY, steps=4))
    assert run.read_summary() is None
    assert (run.path / "recipe.json").read_bytes() == before
    assert run_recipe(run, replace(TINY, steps=6)) == "finished"


def test_a_run_that_reached_its_threshold_has_finished(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = replace(TINY, evaluation=Evaluation(stop_threshold=0.01), steps=20)
    run_recipe(run, recipe)
    assert count_steps(run) == 5
    printed = read_stderr(capsys)
    assert "% after step 5 of 20, ended early: top-1" in printed
    assert "reached the stop threshold of 1 %. Report: " in printed
    run_recipe(run, recipe)
    assert "has finished already" in read_stderr(capsys)


def test_a_damaged_checkpoint_ahead_never_costs_the_run_its_whole_ones(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = Checkpoint(every_steps=2, every_minutes=0, keep=1, keep_best=False)
    run_recipe(run, replace(TINY, steps=4, checkpoint=replace(rules, keep=5)))
    ahead = run.checkpoints / "step-400"
    ahead.mkdir()
    (ahead / "manifest.json").write_text("{}")
    assert run_recipe(run, replace(TINY, checkpoint=rules)) == "finished"
    assert "Skipping a damaged checkpoint" in read_stderr(capsys)
    assert count_steps(run) == 10
    assert (run.checkpoints / "step-10" / "model.safetensors").read_bytes() == run.model.read_bytes()


def test_the_resolved_recipe_is_written_into_the_run(run: RunDir) -> None:
    run_recipe(run, change_part(replace(TINY, steps=1), "optimizer", lr=0.03))
    stored = json.loads((run.path / "recipe.json").read_text())
    assert stored["recipe"]["optimizer"]["lr"] == 0.03
    assert stored["recipe"]["steps"] == 1
    assert (stored["name"], stored["command"], stored["device"]) == ("tiny", "viaduct train tiny", "cpu")


def test_a_run_does_not_continue_on_other_images(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run_recipe(run, replace(TINY, steps=4))
    before, after = run.read_recipe_json(), make_images(None)
    relabelled = replace(after.train, labels=after.train.labels[::-1].copy())
    for train, words in ((make_split(32, seed=1), "32 now"), (relabelled, "40 now, with other labels")):
        changed = replace(after, train=train)
        monkeypatch.setattr("viaduct.training.session.load_images", lambda data, path, changed=changed: changed)
        with pytest.raises(BadRun, match=f"training: 40 images then, {words}"):
            run_recipe(run, replace(TINY, steps=6))
    assert run.read_recipe_json() == before


def test_a_run_without_a_checkpoint_begins_anew_with_other_values(run: RunDir) -> None:
    with pytest.raises(Diverged):
        run_recipe(run, change_part(replace(TINY, log=Log(every_steps=1)), "optimizer", lr=1e38))
    assert run.is_begun
    assert run_recipe(run, change_part(TINY, "optimizer", lr=0.05)) == "finished"
    assert run.read_recipe_json()["recipe"]["optimizer"]["lr"] == 0.05
