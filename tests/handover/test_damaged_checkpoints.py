"""Checkpoints with a damaged file: what is wrong, what is used instead, and weights that do not need that file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from viaduct.errors import BadRun
from viaduct.handover.classifier import open_run
from viaduct.training.scoring import score_checkpoints

MODEL, STATE = "model.safetensors", "state.pt"


@pytest.fixture
def run(shapes_run: Path, tmp_path: Path) -> Path:
    """A run with checkpoints of the steps 4, 8 and 12."""
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy)
    for other in (copy / "checkpoints").glob("step-*"):
        if other.name != "step-12":
            shutil.rmtree(other)
    whole = copy / "checkpoints" / "step-12"
    for step in (4, 8):
        shutil.copytree(whole, whole.with_name(f"step-{step}"))
        manifest = json.loads((whole / "manifest.json").read_text())
        (whole.with_name(f"step-{step}") / "manifest.json").write_text(json.dumps({**manifest, "step": step}))
    return copy


@pytest.fixture
def damage(run: Path) -> Callable[[int, str], Path]:
    """What flips a bit in a file of a checkpoint."""

    def flip(step: int, name: str) -> Path:
        file = run / "checkpoints" / f"step-{step}" / name
        data = bytearray(file.read_bytes())
        data[-100] ^= 1
        file.write_bytes(data)
        return file

    return flip


def test_a_run_without_damage_says_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert open_run(run).step == 12
    assert capsys.readouterr().err == ""


def test_a_damaged_step_that_was_asked_for_is_named_with_those_that_are_whole(
    run: Path, damage: Callable[[int, str], Path]
) -> None:
    file = damage(8, MODEL)
    with pytest.raises(BadRun, match="the checkpoint of step 8 is damaged") as raised:
        open_run(run, step=8)
    assert str(file) in raised.value.what
    assert raised.value.hints == ("Undamaged are those of the steps 4, 12.",)


def test_a_skipped_checkpoint_says_which_is_used_instead(
    run: Path, damage: Callable[[int, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = damage(12, MODEL)
    assert open_run(run).step == 8
    skipped, instead = capsys.readouterr().err.splitlines()
    assert skipped.startswith(f"Skipping a damaged checkpoint: {file} ")
    assert instead == "Using the checkpoint of step 8 instead."


@pytest.mark.parametrize("step", [None, 12])
def test_damage_to_what_only_training_needs_costs_no_weights(
    step: int | None, run: Path, damage: Callable[[int, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = damage(12, STATE)
    assert open_run(run, step=step).step == 12
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file} ")
    assert line.endswith("Training cannot continue from step 12; its weights are undamaged and are used.")


def test_every_checkpoint_with_undamaged_weights_is_scored(run: Path, damage: Callable[[int, str], Path]) -> None:
    damage(4, MODEL)
    damage(8, STATE)
    rows = score_checkpoints(run, data=None, device="cpu", precision=None, step=None, every=True)
    assert [row["step"] for row in rows] == [8, 12]


def test_nothing_is_left_if_all_weights_are_damaged(run: Path, damage: Callable[[int, str], Path]) -> None:
    for step in (4, 8, 12):
        damage(step, MODEL)
    with pytest.raises(BadRun, match="no checkpoint with undamaged weights is left"):
        open_run(run)
    with pytest.raises(BadRun, match="step 8 is damaged") as raised:
        open_run(run, step=8)
    assert raised.value.hints == ("No other one is undamaged.",)
