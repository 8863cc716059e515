"""Beginning, continuing and ending a run, in this process; what signals and kills do is in test_survival.py."""

from __future__ import annotations

import errno
import json
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

from training.tiny_runs import RECIPE, After, images, make_images, within
from viaduct.data.batches import Batch
from viaduct.errors import BadData, BadRun, BadValue, DiskFull, Diverged, OutOfMemory
from viaduct.recipes import Checkpoint, Cifar10, Evaluation, LoadedRecipe, Log, Recipe
from viaduct.training.callbacks import Callback, MetricsFile
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.distributed import Group
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir
from viaduct.training.session import TrainingRequest, load_images, print_resume_command, run_training

TINY = replace(RECIPE, log=Log(every_steps=5), checkpoint=Checkpoint(every_steps=2, every_minutes=0, keep_best=False))


@pytest.fixture(autouse=True)
def a_stored_recipe_can_be_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def run_recipe(run: RunDir, recipe: Recipe = TINY, resume: str = "auto") -> str:
    """Train; what was said meanwhile is in capsys."""
    request = TrainingRequest(
        LoadedRecipe("tiny", recipe, "Tiny.", None), run, None, "cpu", resume, "viaduct train tiny"
    )
    return "finished" if run_training(request).finished else "interrupted"


def read_stderr(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def steps_of(run: RunDir) -> int:
    summary = run.read_summary()
    assert summary is not None
    return int(summary["steps"])


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


def test_a_callback_that_looks_closely_is_the_summarys_reason_for_no_sinks(run: RunDir) -> None:
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
    assert steps_of(run) == steps
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
    assert steps_of(run) == 5
    read_stderr(capsys)
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
    assert steps_of(run) == 10
    assert (run.checkpoints / "step-10" / "model.safetensors").read_bytes() == run.model.read_bytes()


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


def test_evaluating_only_leaves_the_run_as_it_was(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    run_recipe(run, replace(TINY, steps=4))
    (run.path / "summary.json").unlink()  # as if it had been stopped there
    recipe = (run.path / "recipe.json").read_text()
    run_recipe(run, replace(TINY, evaluation=Evaluation(eval_only=True)))
    assert (run.path / "recipe.json").read_text() == recipe
    assert run.read_summary() is None
    assert "Evaluating" in capsys.readouterr().out
    assert run_recipe(run) == "finished"
    assert steps_of(run) == 10


def test_the_command_that_continues_a_run_can_be_pasted() -> None:
    notes: list[str] = []
    stopped: Any = SimpleNamespace(
        step=1, steps=2, run=RunDir(Path("my runs/try 1")), group=Group(), print_note=notes.append
    )
    print_resume_command(stopped)
    assert notes[-1] == "  viaduct train --run 'my runs/try 1'"


def test_a_full_disk_is_reported_whoever_finds_it_first(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: MetricsFile, kind: str, record: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MetricsFile, "write", no_room)
    with pytest.raises(
        DiskFull, match=r"run' cannot be written: No space left on device.\n  Checkpoints written before are kept"
    ):
        run_recipe(run)


def test_an_error_that_is_not_about_room_stays_what_it_is(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: MetricsFile, kind: str, record: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(MetricsFile, "write", unreadable)
    with pytest.raises(PermissionError):
        run_recipe(run)


def test_the_resolved_recipe_is_written_into_the_run(run: RunDir) -> None:
    run_recipe(run, within(replace(TINY, steps=1), "optimizer", lr=0.03))
    stored = json.loads((run.path / "recipe.json").read_text())
    assert stored["recipe"]["optimizer"]["lr"] == 0.03
    assert stored["recipe"]["steps"] == 1
    assert (stored["name"], stored["command"], stored["device"]) == ("tiny", "viaduct train tiny", "cpu")


def test_data_that_need_a_place_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="this recipe trains on cifar10: say where it is with --data DIR"):
        load_images(Cifar10(8, 32), None)
    assert load_images(RECIPE.data, None).names == make_images(None).names


def test_the_page_says_how_often_each_class_is_seen_when_they_are_balanced(run: RunDir) -> None:
    run_recipe(run)
    assert "seen in an epoch" not in run.report.read_text()
    balanced = RunDir(run.path.with_name("balanced"))
    run_recipe(balanced, within(TINY, "data", balance=1.0))
    assert "seen in an epoch" in balanced.report.read_text()


def test_a_run_does_not_continue_on_other_images(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run_recipe(run, replace(TINY, steps=4))
    before, after = run.read_recipe_json(), make_images(None)
    relabelled = replace(after.train, labels=after.train.labels[::-1].copy())
    for train, words in ((images(32, seed=1), "32 now"), (relabelled, "40 now, with other labels")):
        changed = replace(after, train=train)
        monkeypatch.setattr("viaduct.training.session.load_images", lambda data, path, changed=changed: changed)
        with pytest.raises(BadRun, match=f"training: 40 images then, {words}"):
            run_recipe(run, replace(TINY, steps=6))
    assert run.read_recipe_json() == before


def test_a_run_without_a_checkpoint_begins_anew_with_other_values(run: RunDir) -> None:
    with pytest.raises(Diverged):
        run_recipe(run, within(replace(TINY, log=Log(every_steps=1)), "optimizer", lr=1e38))
    assert run.is_begun
    assert run_recipe(run, within(TINY, "optimizer", lr=0.05)) == "finished"
    assert run.read_recipe_json()["recipe"]["optimizer"]["lr"] == 0.05


def test_a_run_that_diverges_leaves_its_page(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Diverged):
        run_recipe(run, within(replace(TINY, log=Log(every_steps=1)), "optimizer", lr=1e38))
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

    monkeypatch.setattr("viaduct.training.session.write_report", full)
    with pytest.raises(Diverged):
        run_recipe(run, within(replace(TINY, log=Log(every_steps=1)), "optimizer", lr=1e38))


def test_bad_weights_stop_a_run_though_the_loss_is_still_finite(run: RunDir) -> None:
    def poison(training: Training) -> None:
        with torch.no_grad():
            next(training.model.parameters())[0, 0, 0, 0] = math.nan
        setattr(training, "objective", lambda logits, *rest: 0 * torch.nan_to_num(logits).sum() + 1.0)  # noqa: B010

    with pytest.raises(Diverged, match="became nan at step"):
        run_recipe(run, replace(TINY, callbacks=(After(3, poison),)))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("[enforce fail] can't allocate memory: 48 TB")])
def test_too_little_memory_is_named_with_what_to_try(run: RunDir, error: Exception) -> None:
    def fail(training: Training) -> None:
        raise error

    with pytest.raises(OutOfMemory, match="batches of 8 images of 16 pixels") as caught:
        run_recipe(run, replace(TINY, callbacks=(After(1, fail),)))
    assert "--accumulate 2" in caught.value.hints[0]


def test_other_errors_of_torch_are_not_taken_for_memory(run: RunDir) -> None:
    def fail(training: Training) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(BadValue, match=r"the recipe's callback After\.\w+ fails: .*shapes do not match"):
        run_recipe(run, replace(TINY, callbacks=(After(1, fail),)))


def test_a_batch_too_small_for_batch_norm_is_named(run: RunDir) -> None:
    recipe = within(replace(TINY, model="resnet18_v1"), "data", global_batch=1)
    with pytest.raises(BadValue, match="a single value per channel with a batch of 1"):
        run_recipe(run, recipe)
