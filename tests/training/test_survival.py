"""Whatever happens to a run, nothing is lost: real processes, real signals."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from forked_viaduct import Command, start_viaduct, viaduct
from viaduct.atomic_files import LEFTOVERS

RECIPE = """
import os
import time
from torch import nn
from viaduct.recipes import Checkpoint, Cosine, Evaluation, Log, Recipe, Sgd, Shapes
from viaduct.training import Callback

class Slowly(Callback):
    def step(self, training):
        time.sleep(0.008)

rename = os.rename

def rename_slowly(*paths):
    time.sleep(0.02)  # a checkpoint is half-written long enough for a kill to fall into it
    rename(*paths)

os.rename = rename_slowly

def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.3),
        nn.Flatten(), nn.Linear(16 * 49, 64), nn.ReLU(), nn.Linear(64, classes),
    )

recipe = Recipe(
    model=network,
    data=Shapes(global_batch=32, size=16, train_images=640, validation_images=64, pad=2, flip=True),
    optimizer=Sgd(lr=0.05, weight_decay=1e-4),
    schedule=Cosine(warmup_epochs=1),
    epochs=8,
    evaluation=Evaluation(every_epochs=2),
    checkpoint=Checkpoint(every_steps=3, keep=2),
    log=Log(every_steps=10),
    callbacks=(Slowly(),),
)
"""
STEPS = 160
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "mine.py"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    process = launch(recipe, run)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return run


def words_for(recipe: Path | None, run: Path, *more: str) -> list[str]:
    return ["train", *([str(recipe)] if recipe else []), "--run", str(run), "--device", "cpu", *more]


def launch(recipe: Path | None, run: Path, *more: str) -> subprocess.Popen[str]:
    """A Python of its own, where the way it ends is what matters."""
    return subprocess.Popen(
        [sys.executable, "-m", "viaduct", *words_for(recipe, run, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step:") and int(line.split("step:")[1].split()[0]) >= step:
            return
    raise AssertionError(f"the run ended before step {step}: {process.stderr and process.stderr.read()}")


def is_writing(run: Path) -> bool:
    """Return True if a checkpoint is half-written or half-removed."""
    return any((run / "checkpoints").glob(LEFTOVERS))


def kill_while_writing(process: Command, run: Path) -> None:
    """Stop the process while a checkpoint is half-written, then kill it."""
    began = time.monotonic()
    while process.returncode is None and time.monotonic() - began < 300:
        if is_writing(run):
            os.kill(process.pid, signal.SIGSTOP)
            if is_writing(run):  # on a loaded machine it may have been done before it was stopped
                break
            os.kill(process.pid, signal.SIGCONT)
    process.kill()


def same_evaluations(one: Path, other: Path) -> bool:
    def evaluations(run: Path) -> list[tuple[int, float, float]]:
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found = {r["step"]: (r["step"], r["top1"], r["loss"]) for r in records if r["kind"] == "evaluation"}
        return list(found.values())

    return evaluations(one) == evaluations(other) != []


def test_twenty_kills_change_nothing(recipe: Path, undisturbed: Path, tmp_path: Path) -> None:
    run, moments = tmp_path / "run", random.Random(7)
    kills = half_written = finished = 0
    while kills < 20:
        with start_viaduct(*words_for(recipe, run)) as process:
            if kills % 2:
                kill_while_writing(process, run)
            else:
                time.sleep(moments.uniform(0.1, 1.5))
                process.kill()
            process.communicate()
        if process.returncode == 0:  # it came to its end between two kills: begin another
            assert_equal_runs(run, undisturbed)
            shutil.rmtree(run)
            finished += 1
            assert finished < 20, "no process is killed before it ends"
        else:
            kills += 1
            half_written += is_writing(run)
    assert half_written >= 5, "too few kills fell into the writing of a checkpoint"
    last = viaduct(*words_for(recipe, run))
    assert last.returncode == 0, last.stderr
    assert_equal_runs(run, undisturbed)


def assert_equal_runs(run: Path, undisturbed: Path) -> None:
    assert (run / "model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()
    assert same_evaluations(run, undisturbed)
    assert not is_writing(run)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_a_checkpoint_and_the_command_that_continues(
    recipe: Path, undisturbed: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    process = launch(recipe, run)
    wait_for_step(process, 50)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == code
    assert f"viaduct train --run {run}" in errors
    stopped = int(errors.split("Stopped after step ")[1].split()[0])
    assert (run / "checkpoints" / f"step-{stopped}").is_dir()
    assert not (run / "model.safetensors").exists()
    again = viaduct(*words_for(None, run))
    assert again.returncode == 0, again.stderr
    assert f"step-{stopped}" in again.stderr
    assert (run / "model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()


def test_a_closed_terminal_ends_with_a_checkpoint(recipe: Path, tmp_path: Path) -> None:
    run, (ours, terminal) = tmp_path / "run", os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "viaduct", *words_for(recipe, run, "--set", "checkpoint.every_steps=1000")],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=ENVIRONMENT,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    seen = b""
    while b"step:" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)  # the kernel sends SIGHUP, and every write to the terminal fails from now on
    assert process.wait(600) == 129
    (saved,) = (run / "checkpoints").glob("step-*")
    assert saved.name in viaduct(*words_for(None, run)).stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_run_outlives_what_its_shell_has_ignored(recipe: Path, tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    before = signal.signal(number, signal.SIG_IGN)  # as nohup and background jobs have it, and children inherit
    try:
        process = launch(recipe, run, "--steps", "40")
    finally:
        signal.signal(number, before)
    wait_for_step(process, 10)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert (run / "model.safetensors").is_file()


def test_a_second_ctrl_c_ends_at_once(recipe: Path, tmp_path: Path) -> None:
    process = launch(recipe, tmp_path / "run", "--set", "data.validation_images=20000", "--eval-every", "0.5")
    wait_for_step(process, 10)
    while process.poll() is None:  # a signal that comes before the last one was handled is lost
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    process.communicate(timeout=600)
    assert process.returncode == -signal.SIGINT


def test_a_finished_run_says_so_and_is_left_alone(recipe: Path, undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    answer = viaduct(*words_for(recipe, undisturbed))
    assert answer.returncode == 0
    assert "finished already" in answer.stderr
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()} == before


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(
    recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    for name in ("model.safetensors", "summary.json", "report.html"):
        (run / name).unlink()
    newest = run / "checkpoints" / f"step-{STEPS}" / "model.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[-100] ^= 1
    newest.write_bytes(damaged)
    answer = viaduct(*words_for(recipe, run))
    assert answer.returncode == 0
    assert f"Skipping a damaged checkpoint: {newest}" in answer.stderr
    assert f"Continuing from {run / 'checkpoints' / f'step-{STEPS - 1}'}" in answer.stderr
    assert (run / "model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()


def test_a_finished_run_can_be_made_longer(recipe: Path, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    answer = viaduct(*words_for(recipe, run, "--epochs", "9"))
    assert answer.returncode == 0, answer.stderr
    assert json.loads((run / "summary.json").read_text())["steps"] == 180


def test_a_second_process_is_kept_out_of_a_run(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with start_viaduct(*words_for(recipe, run)) as first:
        first.wait_for(lambda output: "step:" in output)
        second = viaduct(*words_for(recipe, run))
    assert second.returncode == 2
    assert f"process {first.pid} is training there" in second.stderr
