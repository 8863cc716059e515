"""A run directory belongs to one recipe and one process, and its metrics tell one story."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from training.tiny_runs import RECIPE, change_part
from viaduct.errors import BadRun
from viaduct.recipes import AdamW, Cosine, LoadedRecipe, Recipe, Top1, load
from viaduct.recipes._fields import override, to_record
from viaduct.training.rundir import RunDir


def make_loaded(recipe: Recipe = RECIPE, name: str = "mine") -> LoadedRecipe:
    return LoadedRecipe(name, recipe, "A recipe.", None)


def begin_run(run: RunDir, recipe: Recipe = RECIPE) -> None:
    run.record_start(make_loaded(recipe), {"name": "mine", "file": None, "recipe": to_record(recipe)})


def test_nothing_is_refused_to_the_recipe_that_began_the_run(run: RunDir) -> None:
    begin_run(run)
    run.refuse_other_recipe(make_loaded())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("epochs", "9"),
        ("steps", "70"),
        ("evaluation.every_epochs", "3"),
        ("evaluation.stop_threshold", "0.5"),
        ("checkpoint.keep", "2"),
        ("log.format", "tf"),
        ("log.every_steps", "7"),
    ],
)
def test_the_length_of_a_run_and_what_it_records_may_change(run: RunDir, path: str, text: str) -> None:
    begin_run(run)
    run.refuse_other_recipe(make_loaded(override(RECIPE, path, text)))


def test_the_expected_accuracy_and_the_callbacks_may_change(run: RunDir) -> None:
    begin_run(run)
    run.refuse_other_recipe(make_loaded(replace(RECIPE, expects=Top1(99.0), callbacks=(print,))))


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "histograms.jsonl", "log.txt", "log.json", "event_log.txt", ".reached"]
)
def test_a_pipe_in_place_of_a_file_that_grows_is_refused_before_it_blocks(run: RunDir, name: str) -> None:
    begin_run(run)
    os.mkfifo(run.path / name)
    with pytest.raises(BadRun, match="is not a file, but a folder, a pipe or a device"):
        run.refuse_special_files()


def test_another_recipe_is_refused_by_both_names(run: RunDir) -> None:
    begin_run(run)
    with pytest.raises(BadRun, match=r"run' holds a run of 'mine', not of 'yours'.\n  Choose another place with --run"):
        run.refuse_other_recipe(make_loaded(name="yours"))


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("optimizer.lr", "0.5", "begun with optimizer.lr=0.1, not 0.5."),
        ("seed", "2", "begun with seed=1, not 2."),
        ("data.global_batch", "10", "begun with data.global_batch=8, not 10."),
        ("precision.compute", "bf16", "begun with precision.compute=fp32, not bf16."),
        ("mode", "graph", "begun with mode=auto, not graph."),
        ("model", "resnet20_cifar", "begun with model=build_plain_network, not resnet20_cifar."),
    ],
)
def test_another_value_is_refused_with_both(run: RunDir, path: str, text: str, message: str) -> None:
    begin_run(run)
    with pytest.raises(BadRun) as caught:
        run.refuse_other_recipe(make_loaded(override(RECIPE, path, text)))
    assert message in str(caught.value)
    assert f"`viaduct train --run {run.path}` continues it" in str(caught.value)


def test_the_command_that_continues_a_run_can_be_pasted(tmp_path: Path) -> None:
    spaced = RunDir(tmp_path / "try 1")
    begin_run(spaced)
    with pytest.raises(BadRun, match=r"`viaduct train --run '.*try 1'` continues it"):
        spaced.refuse_other_recipe(make_loaded(replace(RECIPE, seed=9)))


def test_several_other_values_are_counted(run: RunDir) -> None:
    begin_run(run)
    with pytest.raises(BadRun, match=r"optimizer.lr=0.1, not 0.5 \(and 2 more\)"):
        run.refuse_other_recipe(make_loaded(replace(change_part(RECIPE, "optimizer", lr=0.5), seed=4, clip_norm=1.0)))


def test_another_part_is_one_difference_called_by_its_name(run: RunDir) -> None:
    begin_run(run)
    with pytest.raises(BadRun, match=r"begun with optimizer=Sgd, not AdamW\."):
        run.refuse_other_recipe(make_loaded(replace(RECIPE, optimizer=AdamW())))
    with pytest.raises(BadRun, match=r"begun with schedule=Constant, not Cosine\."):
        run.refuse_other_recipe(make_loaded(replace(RECIPE, schedule=Cosine())))


def test_a_folder_that_is_no_run_is_called_that(run: RunDir) -> None:
    assert not run.is_begun
    with pytest.raises(BadRun, match=r"run' is not a run: it has no recipe.json"):
        run.read_recipe_json()
    (run.path / "recipe.json").write_text('{"name": "mi')
    with pytest.raises(BadRun, match=r"recipe.json is damaged"):
        run.read_recipe_json()


def test_a_run_remembers_the_recipe_it_was_begun_with(run: RunDir) -> None:
    taster = load("shapes_taster")
    changed = replace(taster, recipe=override(taster.recipe, "optimizer.lr", "0.25"))
    run.record_start(changed, {"name": "shapes_taster", "file": None, "recipe": to_record(changed.recipe)})
    assert run.is_begun
    assert run.load_recipe().recipe == changed.recipe


OWN = """
\"\"\"My own.\"\"\"
from viaduct.recipes import Recipe, Shapes
def network(classes): return "{word}"
recipe = Recipe(model=network, data=Shapes(8, 16))
"""


def test_a_recipe_file_that_has_changed_since_is_not_the_one_that_continues(run: RunDir, tmp_path: Path) -> None:
    file = tmp_path / "own_recipe.py"
    file.write_text(OWN.format(word="first"))
    own = load(str(file))
    run.record_start(own, {"name": own.name, "file": str(file), "recipe": to_record(own.recipe)})
    file.write_text(OWN.format(word="second"))
    again = run.load_recipe()
    assert (again.name, again.recipe.model(4)) == ("own_recipe", "first")
    file.unlink()
    assert run.load_recipe().recipe.model(4) == "first"


@pytest.fixture(autouse=True)
def path_stays_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a recipe file puts its folder on the path, for its neighbours."""
    monkeypatch.setattr(sys, "path", [*sys.path])


HOLD = """
import sys
from pathlib import Path
from viaduct.training.rundir import RunDir
with RunDir(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(run: RunDir) -> Iterator[subprocess.Popen[str]]:
    """Another process that trains in the run."""
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_second_process_is_kept_out_until_the_first_one_dies(run: RunDir, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(BadRun, match=rf"is in use: process {holder.pid} is training there"), run.lock():
        raise AssertionError("it was let in")
    assert (run.path / ".lock").read_text() == str(holder.pid)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with run.lock():
        assert (run.path / ".lock").read_text() == str(os.getpid())


def test_a_lock_can_be_taken_again_after_it_was_given_back(run: RunDir) -> None:
    with run.lock(), pytest.raises(BadRun, match="is in use"), RunDir(run.path).lock():
        raise AssertionError("it was let in")
    with pytest.raises(KeyError), run.lock():
        raise KeyError("a bug in the loop")
    with run.lock():
        pass


def line(step: int, kind: str = "log", **more: object) -> str:
    return json.dumps({"kind": kind, "step": step, **more})


def test_nothing_before_the_resumed_step_is_forgotten(run: RunDir) -> None:
    lines = [line(1), line(2), line(2, "evaluation"), line(2, "checkpoint")]
    run.metrics.write_text("\n".join([*lines, line(3), line(4, "checkpoint")]) + "\n")
    run.drop_metrics_after(2)
    assert run.metrics.read_text().splitlines() == lines


@pytest.mark.parametrize("half", [line(2)[:-5], "{", "null", "\x00\x00\x00", '{"kind": "log"}'])
def test_a_line_cut_short_is_forgotten(run: RunDir, half: str) -> None:
    run.metrics.write_text(line(1) + "\n" + half)
    run.drop_metrics_after(9)
    assert run.metrics.read_text() == line(1) + "\n"


def test_a_last_line_without_its_end_is_kept_and_ended(run: RunDir) -> None:
    run.metrics.write_text(line(1))
    run.drop_metrics_after(1)
    assert run.metrics.read_text() == line(1) + "\n"


def test_a_run_without_metrics_has_nothing_to_forget(run: RunDir) -> None:
    run.drop_metrics_after(3)
    assert not run.metrics.exists()
    assert run.read_records("log") == []


def test_a_step_is_reported_once_by_its_last_record(run: RunDir) -> None:
    log = {"epoch": 0.5, "images_per_s": None, "top1": 0.1, "lr": 0.1}
    score = dict.fromkeys(("epoch", "loss", "top5", "precision", "recall", "f1"), 0.5)
    lines = [line(1, loss=3.0, **log), line(1, "evaluation", top1=0.1, **score), line(2, loss=2.0, **log)]
    lines += [line(2, "evaluation", top1=top1, **score) for top1 in (0.2, 0.3)]
    damaged = [line(2, loss="low", **log), '{"kind": "log"', "[]", line(2, "evaluation", **{**score, "top1": []})]
    run.metrics.write_text("\n".join([*lines, *damaged]) + "\n")
    assert [record["loss"] for record in run.read_records("log")] == [3.0, 2.0]
    assert [(record["step"], record["top1"]) for record in run.read_records("evaluation")] == [(1, 0.1), (2, 0.3)]


def test_a_run_has_a_summary_only_once_it_is_whole(run: RunDir) -> None:
    assert run.read_summary() is None
    (run.path / "summary.json").write_text('{"steps": ')
    assert run.read_summary() is None
    summary = {"steps": 10, "length": {"steps": 0, "epochs": 1.0}}
    (run.path / "summary.json").write_text(json.dumps(summary))
    assert run.read_summary() == summary
