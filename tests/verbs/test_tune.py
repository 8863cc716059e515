"""viaduct tune: run, show and merge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from forked_viaduct import start_viaduct, viaduct
from tuning.bank_entries import ELSEWHERE, HERE, make_entry
from viaduct.tuning.bank import Bank, read_bank_file
from viaduct.tuning.fingerprint import read_fingerprint


def fill(path: Path, *names: str, gain: float = 1.25) -> Path:
    path.mkdir()
    for name in names:
        Bank(path).update(HERE, lambda stored, name=name: stored.with_entry(make_entry(name, 100.0, 100.0 / gain)))
    return path


def tune(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return viaduct("tune", *words, **environment)


def test_show_prints_a_table_and_the_same_as_json(tmp_path: Path) -> None:
    bank = fill(tmp_path / "bank", "a", "b")
    shown = tune("show", bank)
    assert shown.returncode == 0
    assert "1.25x" in shown.stdout
    assert "layout=contiguous" in shown.stdout
    assert "some processor" in shown.stdout
    found = json.loads(tune("show", bank, "--json").stdout)
    assert [entry["gain"] for entry in found[0]["entries"]] == [1.25, 1.25]


def test_show_without_a_path_takes_the_variable(tmp_path: Path) -> None:
    bank = fill(tmp_path / "bank", "a")
    assert "1.25x" in tune("show", TUNE_BANK_PATH=str(bank)).stdout
    refused = tune("show", TUNE_BANK_PATH=str(tmp_path / "absent"))
    assert refused.returncode == 2
    assert "does not exist" in refused.stderr


def test_merge_keeps_the_better_entry_and_devices_apart(tmp_path: Path) -> None:
    first, second = fill(tmp_path / "a", "x", "y"), fill(tmp_path / "b", "x", gain=2.0)
    Bank(second).update(ELSEWHERE, lambda stored: stored.with_entry(make_entry("x")))
    merged = tune("merge", first, second, "--out", tmp_path / "c")
    assert merged.returncode == 0, merged.stderr
    result = Bank(tmp_path / "c")
    assert {key: entry.gain for key, entry in result.read(HERE).entries.items()} == {
        "conv2d x=x": 2.0,
        "conv2d x=y": 1.25,
    }
    assert len(result.read(ELSEWHERE).entries) == 1


def test_a_damaged_or_absent_bank_is_refused_and_nothing_written(tmp_path: Path) -> None:
    bank = fill(tmp_path / "bank", "a")
    (bank / HERE.file_name).write_text("{")
    for words in (("show", bank), ("merge", bank, bank, "--out", tmp_path / "c"), ("show", tmp_path / "absent")):
        refused = tune(*words)
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr
        assert str(words[1]) in refused.stderr
    assert not (tmp_path / "c").exists()
    assert (bank / HERE.file_name).read_text() == "{"


RECIPE = """
from torch import nn
from viaduct.recipes import Recipe, Sgd, Shapes

def make_network(classes):
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(), *pooled)

recipe = Recipe(
    model=make_network,
    data=Shapes(global_batch=8, size=16, train_images=64, validation_images=8),
    optimizer=Sgd(lr=0.1, momentum=0.9),
    steps=4,
)
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(RECIPE)
    return path


def run_words(recipe: Path, bank: Path, budget: str = "240s") -> list[str | Path]:
    return ["tune", "run", recipe, "--device", "cpu", "--budget", budget, "--mode", "exhaustive", "--bank", bank]


def count_journal_lines(bank: Path) -> int:
    return sum(file.read_text().count("\n") for file in bank.glob("journal/*/*.jsonl"))


def test_the_whole_flow_finds_stores_judges_and_trains(tmp_path: Path, recipe: Path) -> None:
    bank = tmp_path / "bank"
    done = viaduct(*run_words(recipe, bank), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kinds = [row["signature"]["kind"] for row in report["operators"]]
    assert sorted(kinds) == ["conv2d", "conv2d", "linear", "optimizer"]
    assert all(row["status"]["bank_append"] for row in report["operators"])
    entries = [row["entry"] for row in report["operators"]]
    better = [entry for entry in entries if entry["choice"] != entry["default"]]
    assert all(entry["best_us"] <= 0.97 * entry["default_us"] for entry in better)
    if better and report["verdict"] is None:
        assert any("undecided" in line for line in report["conclusions"])
    elif better:  # a gain of operators is judged by the whole step; either answer is said
        verdict = report["verdict"]
        assert set(verdict["choices"]) == {
            " ".join(f"{name}={value}" if name != "kind" else value for name, value in entry["signature"].items())
            for entry in better
        }
        assert all(entry["installed"] == verdict["is_gain"] for entry in better)
    else:
        assert "No gain: no measured variant is clearly faster than its default." in report["conclusions"]
    results = json.loads(Path(report["result_file"]).read_text())
    assert set(results) == {"[['0']]", "[['2']]", "[['6']]", "[['optimizer']]"}
    assert count_journal_lines(bank) == 0
    again = viaduct(*run_words(recipe, bank), "--json")
    assert json.loads(again.stdout)["measurements"] == 0, "what the bank knows is not measured again"
    assert all(row["status"]["bank_reserved"] for row in json.loads(again.stdout)["operators"])
    trained = viaduct("train", recipe, "--device", "cpu", "--run", tmp_path / "run", "--bank", bank)
    assert trained.returncode == 0, trained.stderr
    installed = report["verdict"] is not None and report["verdict"]["is_gain"]
    tuning = json.loads((tmp_path / "run" / "recipe.json").read_text())["tuning"]
    assert (tuning is not None) == installed
    assert f"Bank {bank} (--bank): " in trained.stderr


def test_kill_9_loses_nothing_that_was_found(tmp_path: Path, recipe: Path) -> None:
    bank = tmp_path / "bank"
    words = [sys.executable, "-m", "viaduct", *map(str, run_words(recipe, bank))]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=alone)
    end = time.monotonic() + 120
    while count_journal_lines(bank) < 6 and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    found = count_journal_lines(bank) + sum(len(row.entries) for row in map(read_bank_file, Bank(bank).list_files()))
    assert found
    lines = count_journal_lines(bank)
    report = json.loads(viaduct(*run_words(recipe, bank), "--json").stdout)
    assert report["replayed"] >= min(lines, 1)
    assert all(row["entry"] for row in report["operators"])


def test_two_processes_tune_into_one_bank(tmp_path: Path, recipe: Path) -> None:
    bank = tmp_path / "bank"
    other = tmp_path / "other.py"
    other.write_text(RECIPE.replace("nn.Conv2d(8, 8, 1)", "nn.Conv2d(8, 8, 3)"))
    with (
        start_viaduct(*run_words(recipe, bank), "--json") as first,
        start_viaduct(*run_words(other, bank), "--json") as second,
    ):
        reports = [json.loads(command.communicate()[0]) for command in (first, second)]
    stored = {key for file in Bank(bank).list_files() for key in read_bank_file(file).entries}
    wanted = {json.dumps(row["signature"]) for report in reports for row in report["operators"]}
    assert len(stored) == len(wanted) == 6  # of four each the first convolution and the linear layer are the same


def test_ctrl_c_keeps_what_was_found(tmp_path: Path, recipe: Path) -> None:
    bank = tmp_path / "bank"
    words = [sys.executable, "-m", "viaduct", *map(str, run_words(recipe, bank))]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not count_journal_lines(bank) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    if process.returncode:  # it may have been done
        assert process.returncode == 130
        assert "Interrupted: what was found is kept" in out
    assert count_journal_lines(bank) or Bank(bank).list_files()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "soon"], "--budget soon is not a time above 0"),
        (["--budget", "0s"], "--budget 0s is not a time above 0"),
        (["--mode", "annealing"], "no search mode called 'annealing'"),
        (["--device", "tpu"], "no device called 'tpu'"),
        (["--bank", "small.py"], "is a file"),
        (["--set", "nonsense=1"], "nonsense"),
        (["--budget", "1s"], "is too small: no variant of an operator could be measured"),
    ],
)
def test_wrong_input_is_refused_with_exit_code_2(recipe: Path, words: list[str], message: str) -> None:
    refused = viaduct("tune", "run", recipe, "--bank", "bank", *words, cwd=recipe.parent)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "result" not in refused.stdout


def test_a_damaged_bank_is_set_aside_and_named(tmp_path: Path, recipe: Path) -> None:
    bank = tmp_path / "bank"
    bank.mkdir()
    file = Bank(bank).find_file(replace(read_fingerprint("cpu"), threads=1))
    file.write_text("{")
    done = viaduct(*run_words(recipe, bank, "1s"))
    assert f"{file} is damaged" in done.stderr
    assert [path.read_text() for path in bank.glob("*.damaged-*")] == ["{"]


def test_training_refuses_a_bank_that_does_not_exist(tmp_path: Path, recipe: Path) -> None:
    refused = viaduct("train", recipe, "--run", tmp_path / "run", "--bank", tmp_path / "absent")
    assert refused.returncode == 2
    assert "there is no bank" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_at_the_start_leaves_no_bank(tmp_path: Path) -> None:
    recipe = tmp_path / "broken.py"
    recipe.write_text(RECIPE.replace("    pooled =", "    raise ValueError('no network')\n    pooled ="))
    assert viaduct(*run_words(recipe, tmp_path / "bank")).returncode == 2
    assert not (tmp_path / "bank").exists()
