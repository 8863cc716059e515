"""Flags, output and refusals of `viaduct train` and `viaduct evaluate`."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from forked_viaduct import viaduct
from verbs.short_run import QUICK, check_refusal
from viaduct.errors import BadValue
from viaduct.recipes import load, names
from viaduct.recipes._fields import list_field_paths, to_record
from viaduct.verbs import _train_arguments, train
from viaduct.verbs._recipe_flags import FLAGS
from viaduct.verbs.train import format_rate_flags

ROOT = Path(__file__).parents[2]
RUN_FIELDS = {"recipe", "listing", "as_json", "data", "device", "run", "resume", "settings", "ranks"}
RUN_FIELDS |= {"dump_steps", "dump_mode", "dump_only", "dump_level", "dump_statistics_only", "watch", "watch_port"}
RUN_FIELDS |= {"profile", "bank"}


def cifar(folder: Path, records: int = 10_000, label: int = 3) -> Path:
    folder.mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        data = np.zeros((records, 3073), np.uint8)
        data[:, 0] = label
        data.tofile(folder / name)
    return folder


def test_every_flag_is_a_field_of_the_recipe_or_of_the_run() -> None:
    assert set(inspect.signature(train.main).parameters) == set(FLAGS) | set(_train_arguments.PER_RANK) | RUN_FIELDS
    aliased = {flag.path for flag in FLAGS.values()}
    known = [set(list_field_paths(load(name).recipe)) for name in names()]
    assert aliased <= set.union(*known)
    of_records = {"on_bad_record", "increased_aug", "brightness", "contrast", "saturation", "hue"}
    assert {f"data.{name}" for name in of_records} >= aliased - set.intersection(*known)


def test_an_unknown_recipe_is_answered_with_the_closest() -> None:
    check_refusal(viaduct("train", "resnet5O_cifar10"), "no recipe called 'resnet5O_cifar10'", "'resnet50_cifar10'")


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["--set", "optimizer.lrr=1"], ["no field called 'optimizer.lrr'", "'optimizer.lr'"]),
        (["--set", "optimizer.lr=fast"], ["optimizer.lr=fast is not a number"]),
        (["--set", "optimizer.lr"], ["--set optimizer.lr has no value"]),
        (["--lr", "-1"], ["optimizer.lr is -1.0"]),
        (["--steps", "1.5"], ["steps=1.5 is not a whole number"]),
        (["--mode", "graphh"], ["mode=graphh is not auto | eager | graph"]),
        (["--compile", "all"], ["compile=all is not auto | regional | whole | off"]),
        (["--kernels", "on"], ["--kernels on: they are for cuda, and this run is on cpu"]),
        (["--sink", "-3"], ["sink is -3; it must be 0 or more, or auto"]),
        (["--sink", "4", "--set", "sink=3"], ["--sink 4 and --set sink=3 contradict each other."]),
        (
            ["--save-every", "4", "--set", "checkpoint.every_steps=3"],
            ["--save-every 4 and --set checkpoint.every_steps"],
        ),
        (["--device", "gpu"], ["no device called 'gpu'"]),
        (["--device", "npu"], ["torch_npu"]),
        (["--batch", "100000"], ["100000"]),
        (["--accumulate", "3"], ["accumulate is 3"]),
        (["--set", "model=resnet51"], ["no model called 'resnet51'"]),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_written(words: list[str], fragments: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    check_refusal(viaduct("train", *QUICK, "--run", run, *words), *fragments)
    assert not (run / "recipe.json").exists()


def test_a_sink_that_is_not_possible_is_explained_once_and_may_change_on_resume(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    answer = viaduct("train", *QUICK, "--run", run, "--sink", "2", "--set", "evaluation.every_epochs=0")
    assert answer.returncode == 0
    assert answer.stderr.count("--sink 2: the host drives each step, because cpu captures no graphs.") == 1
    assert [line.split()[1] for line in answer.stdout.splitlines() if line.startswith("step:")] == ["2"]
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["sink"], summary["sink_on_device"], summary["own_kernels"]) == (2, False, 0)
    again = viaduct("train", "--run", run, "--steps", "3", "--sink", "0")
    assert again.returncode == 0, again.stderr
    assert "--sink" not in again.stderr


def test_missing_data_is_requested(tmp_path: Path) -> None:
    check_refusal(viaduct("train", "resnet56_cifar10", cwd=tmp_path), "--data")
    missing = tmp_path / "nowhere"
    check_refusal(viaduct("train", "resnet56_cifar10", "--data", missing, cwd=tmp_path), str(missing))
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_data_file_is_named_with_both_sizes(tmp_path: Path) -> None:
    data = cifar(tmp_path / "data")
    content = (data / "data_batch_3.bin").read_bytes()
    (data / "data_batch_3.bin").write_bytes(content[:-5000])
    answer = viaduct("train", "resnet56_cifar10", "--data", data, cwd=tmp_path)
    check_refusal(answer, "data_batch_3.bin", "30,730,000", f"{len(content) - 5000:,}")
    assert not (tmp_path / "runs").exists()


def test_a_mislabelled_data_file_is_named(tmp_path: Path) -> None:
    check_refusal(
        viaduct("train", "resnet56_cifar10", "--data", cifar(tmp_path / "d", label=11)), "data_batch_1.bin", "11"
    )


def test_a_recipe_file_without_a_recipe_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("nothing = 1\n")
    check_refusal(viaduct("train", file), "does not define `recipe`")
    file.write_text("import nothing_like_this\n")
    check_refusal(viaduct("train", file), "ModuleNotFoundError", "line 1")


def test_a_run_of_another_recipe_is_refused(finished: Path, tmp_path: Path) -> None:
    data = cifar(tmp_path / "data")
    before = (finished / "recipe.json").read_bytes()
    check_refusal(viaduct("train", "resnet56_cifar10", "--data", data, "--run", finished), "'shapes_taster'", "--run")
    check_refusal(viaduct("train", *QUICK, "--lr", "0.3", "--run", finished), "optimizer.lr=0.1", "0.3")
    assert (finished / "recipe.json").read_bytes() == before


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    check_refusal(viaduct("train", *QUICK, "--run", tmp_path), "is not empty and holds no run")
    check_refusal(viaduct("evaluate", tmp_path), "is not a run")
    check_refusal(viaduct("train", "--run", tmp_path), "is not a run")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_place_that_cannot_be_a_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for words in (["train", "--run", file], ["evaluate", file], ["train", *QUICK, "--run", file]):
        check_refusal(viaduct(*words), str(file))
    check_refusal(viaduct("train", *QUICK, "--run", file / "below"), "notes.txt")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("{}")
    check_refusal(viaduct("evaluate", tmp_path / "run"), "is damaged")
    assert file.read_text() == "mine"


def test_a_length_is_reported_once(finished: Path, tmp_path: Path) -> None:
    check_refusal(viaduct("train", "shapes_taster", "--steps", "2", "--epochs", "1"), "Give one of them")
    check_refusal(viaduct("train", "shapes_taster", "--steps", "0", "--run", tmp_path / "r"), "1 or more")
    check_refusal(viaduct("train", *QUICK, "--data", tmp_path, "--run", tmp_path / "r"), "takes no --data")
    assert not (tmp_path / "r").exists()


def test_a_changed_recipe_file_is_refused_and_the_copy_is_kept(tmp_path: Path) -> None:
    file, run = tmp_path / "mine.py", tmp_path / "run"
    file.write_text((ROOT / "examples" / "my_recipe.py").read_text())
    assert viaduct("train", file, "--run", run, "--device", "cpu", "--steps", "3").returncode == 0
    before = file.read_text()
    file.write_text(before.replace("lr=1e-3", "lr=5e-3"))
    check_refusal(viaduct("train", file, "--run", run, "--device", "cpu", "--steps", "5"), "has changed since")
    assert (run / "recipe.py").read_text() == before


def test_a_run_without_a_whole_checkpoint_is_not_begun_again_in_silence(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "summary.json").unlink()
    for model in run.glob("checkpoints/*/model.safetensors"):
        model.write_bytes(b"short")
    metrics = (run / "metrics.jsonl").read_bytes()
    answer = viaduct("train", "--run", run)
    assert answer.returncode == 2
    assert "no intact checkpoint is left" in answer.stderr
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_what_was_removed_of_a_finished_run_is_written_again(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "model.safetensors").unlink()
    assert viaduct("train", "--run", run).returncode == 0
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_a_run_that_must_be_new_or_must_be_there(finished: Path, tmp_path: Path) -> None:
    check_refusal(viaduct("train", *QUICK, "--run", finished, "--resume", "never"), "holds a run already")
    check_refusal(viaduct("train", *QUICK, "--run", tmp_path / "new", "--resume", "must"), "no run in")


def test_a_checkpoint_of_another_model_is_refused(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    record = json.loads((run / "recipe.json").read_text())
    record["recipe"]["model"] = "resnet32_cifar"
    (run / "recipe.json").write_text(json.dumps(record))
    check_refusal(viaduct("evaluate", run), "is a checkpoint of another model", "missing there")


def test_a_run_leaves_everything_the_user_looks_for(finished: Path) -> None:
    there = {path.name for path in finished.iterdir()}
    assert {"recipe.json", "metrics.jsonl", "log.txt", "model.safetensors", "summary.json", "report.html"} <= there
    assert any(name.startswith("events.out.tfevents") for name in there)
    page = (finished / "report.html").read_text()
    for fragment in ("shapes_taster", "Confusion", "Learning rate", "Predictions", "crescent", "Machine"):
        assert fragment in page


def test_the_example_recipe_trains_with_its_own_parts(tmp_path: Path) -> None:
    answer = viaduct("train", ROOT / "examples" / "my_recipe.py", "--run", tmp_path / "mine", "--device", "cpu")
    assert answer.returncode == 0, answer.stderr
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["final"]["top1"] > 0.9
    assert "nothing left to learn" in summary["stopped"]  # its own callback ended the run
    again = json.loads(viaduct("evaluate", tmp_path / "mine", "--json").stdout)
    assert again["top1"] == pytest.approx(summary["final"]["top1"])


def test_the_recipes_are_listed_with_what_to_expect() -> None:
    rows = json.loads(viaduct("train", "--list", "--json").stdout)
    assert [row["name"] for row in rows] == names()
    assert all(row["summary"] for row in rows)
    assert "91.4 % top-1" in viaduct("train", "--list").stdout


def test_ranks_that_are_not_those_that_were_started_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert train.is_rank(8)
    with pytest.raises(BadValue, match="--ranks 2, but this is one of 8 ranks on this machine"):
        train.is_rank(2)
    monkeypatch.delenv("RANK")
    assert not train.is_rank(2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--ranks", "8", "--batch", "4"], "a global batch of 4 leaves some of 8 ranks without an image"),
        (["--ranks", "2", "--device", "cuda:1"], "device 'cuda:1' is one card, but every rank needs its own"),
        (["--ranks", "2", "--device", "npu"], "no npu to run on"),
        (["--ranks", "2", "--data", "d"], "takes no --data"),
        (["--ranks", "2", "--run", "file"], "'file' is a file, not a run's directory"),
        (
            ["--ranks", "2", "--run", "begun", "--sync-norm"],
            "begun with parallel.sync_norm=False, not True",
        ),
        (["--ranks", "2", "--resume", "must"], "there is no run in"),
        (["--ranks", "0"], "--ranks is 0"),
    ],
)
def test_what_ranks_would_refuse_is_refused_before_there_are_any(
    words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "file").touch()
    record = {"name": "shapes_taster", "file": None, "recipe": to_record(load("shapes_taster").recipe)}
    (tmp_path / "begun" / "checkpoints" / "step-1").mkdir(parents=True)
    (tmp_path / "begun" / "recipe.json").write_text(json.dumps(record))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    answer = viaduct("train", "shapes_taster", *words, cwd=tmp_path, TMPDIR=str(logs))
    assert answer.returncode == 2
    assert answer.stderr.count(expected) == 1
    assert "viaduct launch:" not in answer.stderr
    assert list(logs.iterdir()) == []


def test_a_finished_run_starts_no_ranks(finished: Path) -> None:
    words = ("train", *QUICK, "--run", finished)
    for again in ((*words, "--ranks", "2"), ("launch", "--ranks", "2", "--", *words)):
        answer = viaduct(*again)
        assert answer.returncode == 0, answer.stderr
        assert answer.stderr.count("has finished already") == 1
        assert "ranks" not in answer.stderr


def test_ranks_whose_launcher_was_killed_end_with_a_checkpoint(tmp_path: Path) -> None:
    """Nobody is left to ask them to; without it they would train on in the background, to the last step."""
    words = "train shapes_taster --device cpu --ranks 2 --batch 4 --steps 100000 --log-every 5 --run run"
    output = tmp_path / "said"
    with output.open("w") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "viaduct", *words.split(), "--set", "parallel.hang_seconds=8"],
            cwd=tmp_path,
            stdout=out,
            stderr=out,
        )
    wait_until(lambda: "step:" in output.read_text(), 600)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: "Stopped after step" in output.read_text(), 600)
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


RECIPE = """
from training.tiny_runs import RECIPE

recipe = RECIPE
"""


def write_recipe(folder: Path) -> Path:
    file = folder / "mine.py"
    file.write_text(RECIPE)
    return file


def test_ranks_and_a_second_rate_are_refused(tmp_path: Path) -> None:
    file = write_recipe(tmp_path)
    for words in (["--ranks", "2"], ["--lr-per-rank", "0.1"]):
        answer = viaduct("train", file, "--lr", "find", *words, cwd=tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
        assert answer.returncode == 2, answer.stderr
        assert "--lr find" in answer.stderr
    assert not (tmp_path / "runs").exists()


def test_the_rate_finder_leaves_only_a_page_and_the_run_can_begin_afterwards(tmp_path: Path) -> None:
    file, tests = write_recipe(tmp_path), str(Path(__file__).parents[1])
    words = ["train", file, "--run", tmp_path / "run", "--device", "cpu"]
    found = viaduct(*words, "--lr", "find", "--steps", "60", PYTHONPATH=tests)
    assert found.returncode == 0, found.stderr
    assert "learning rate" in found.stdout or "No rate is suggested" in found.stdout
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rate_finder.html"]
    trained = viaduct(*words, "--steps", "2", PYTHONPATH=tests)
    assert trained.returncode == 0, trained.stderr


def test_the_flag_sets_the_peak_also_where_the_schedule_has_it() -> None:
    assert format_rate_flags(load("shapes_taster").recipe, 0.14) == "--lr 0.14"
    assert format_rate_flags(load("resnet50_lars_imagenet").recipe, 5.0) == "--set schedule.peak=5 --lr 1"
