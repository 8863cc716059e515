"""`viaduct search`: what is refused before anything starts, then real trials, a kill and a resume."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from forked_viaduct import start_viaduct, viaduct

SETTINGS = {
    "data.size": 16,
    "data.train_images": 64,
    "data.validation_images": 32,
    "data.global_batch": 16,
    "precision.compute": "fp32",
    "schedule.warmup_epochs": 0,
}


def tiny(steps: int = 4, **changes: object) -> list[str]:
    """Return the flags of trials that take a second each."""
    settings = {**SETTINGS, **{name.replace("__", "."): value for name, value in changes.items()}}
    words = [argument for path, value in settings.items() for argument in ("--set", f"{path}={value}")]
    return ["--steps", str(steps), "--device", "cpu", "--prune", "none", *words]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shapes_taster"], "No --space is given"),
        (["shapes_taster", "--space", "optimizer.lr=-1..1"], "optimizer.lr is -1.0; it must be 0 or more"),
        (["shapes_taster", "--space", "optimizer.lr=0.1..1", "optimiser.momentum=0,0.9"], "'optimizer.momentum'"),
        (["shapes_tester", "--space", "optimizer.lr=0.1..1"], "no recipe called 'shapes_tester'"),
        (["shapes_taster", "--space", "optimizer.lr=0.1..1", "--metric", "top2"], "no metric called 'top2'"),
        (["shapes_taster", "--space", "optimizer.lr=0.1..1", "--timeout", "soon"], "--timeout soon is not a time"),
        (["shapes_taster", "--space", "optimizer.lr=0.1..1", "--sampler", "grid"], "a grid needs single values"),
        (["shapes_taster", "--space", "optimizer.lr=0.1..1", "--set", "optimizer.lr=1"], "set to one value too"),
        (["shapes_taster", "--space", "optimizer.lr=0.1..1", "--epochs", "2", "--steps", "3"], "both say how long"),
        (["resnet56_cifar10", "--space", "optimizer.lr=0.1..1"], "say where it is with --data DIR"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(tmp_path: Path, words: list[str], message: str) -> None:
    answer = viaduct("search", *words, cwd=tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_trials_that_all_fail_say_the_reason_once(tmp_path: Path) -> None:
    words = ["shapes_taster", "--space", "optimizer.lr=0.1..1", "--study", "study", *tiny(model="resnet2O_quick")]
    answer = viaduct("search", *words, "--trials", "9", "--parallel", "3", cwd=tmp_path)
    assert answer.returncode == 2, answer.stdout
    last = answer.stderr[answer.stderr.index("viaduct search: ") :]
    # A fourth trial may have started beside the third.
    assert re.match(r"viaduct search: the first [3-5] trials failed: no model called 'resnet2O_quick'", last), last
    assert last.count("resnet2O_quick") == 1
    assert "Traceback" not in answer.stderr


def test_every_trial_is_a_run_and_the_best_one_can_be_trained(tmp_path: Path) -> None:
    words = ["search", "shapes_taster", "--space", "optimizer.lr=0.01..1:log", "optimizer.momentum=0,0.9", *tiny()]
    words += ["--trials", "2", "--parallel", "2", "--study", "study"]
    answer = viaduct(*words, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    for number in range(2):
        assert (tmp_path / "study" / f"trial-{number:03d}" / "summary.json").is_file()
        assert f"trial-{number:03d}" in answer.stdout
        assert (
            json.loads((tmp_path / "study" / f"trial-{number:03d}" / "trial.json").read_text())["state"] == "finished"
        )
    first = json.loads((tmp_path / "study" / "trial-000" / "recipe.json").read_text())["recipe"]["optimizer"]
    assert (first["lr"], first["momentum"]) == (0.1, 0.9)
    assert "report.html" in answer.stdout
    page = (tmp_path / "study" / "report.html").read_text()
    assert "optimizer.momentum" in page
    again = viaduct(*words, cwd=tmp_path)
    assert again.returncode == 0
    assert "trial 1/2" not in again.stderr
    command = next(line for line in answer.stdout.splitlines() if line.startswith("Train it at full length: "))
    best = shlex.split(command.split(": ", 1)[1])[1:]
    small = ["--steps", "1", "--run", "best"]
    trained = viaduct(*best, *small, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr


def test_a_search_that_was_killed_resumes_its_trial_and_repeats_none(tmp_path: Path) -> None:
    words = ["search", "shapes_taster", "--space", "optimizer.lr=0.01..1:log", "--study", tmp_path / "study"]
    words += [*tiny(steps=60, checkpoint__every_steps=5), "--trials", "2"]
    checkpoints = tmp_path / "study" / "trial-000" / "checkpoints"
    with start_viaduct(*words) as search:
        wait_for(lambda: checkpoints.is_dir() and any(checkpoints.glob("step-*")))
        os.kill(search.pid, signal.SIGKILL)
        search.communicate()
    assert not (tmp_path / "study" / "trial-000" / "summary.json").exists()
    second = viaduct(*words)
    assert second.returncode == 0, second.stderr
    assert "trial 1/2: resumed" in second.stderr
    log = (tmp_path / "study" / "logs" / "trial-000.txt").read_text()
    assert "Continuing from" in log
    assert not (tmp_path / "study" / "trial-002").exists()


@pytest.mark.slow
def test_eight_trials_beat_the_worst_quarter(tmp_path: Path) -> None:
    space = ["--space", "optimizer.lr=0.001..3:log", "optimizer.momentum=0,0.5,0.9,0.95"]
    sizes = {"data__train_images": 4800, "data__validation_images": 1000, "data__global_batch": 32}
    flags = [
        argument for argument in tiny(150, **sizes, schedule__warmup_epochs=0.1) if argument not in ("--prune", "none")
    ]
    answer = viaduct("search", "shapes_taster", *space, *flags, "--trials", "8", "--study", tmp_path / "study")
    assert answer.returncode == 0, answer.stderr
    rows = [line.split() for line in answer.stdout.splitlines() if line.startswith("trial-")]
    reached = sorted(float(row[row.index("%") - 1]) for row in rows)
    assert len(rows) == 8
    assert reached[-1] > 1.5 * reached[2]
    assert reached[-1] > 30


def wait_for(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)
