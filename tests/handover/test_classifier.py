"""A trained run opened for use: the inputs of evaluation, the names of its classes, undamaged weights."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from viaduct.data.png import encode_png
from viaduct.errors import BadRun
from viaduct.handover.classifier import Classifier, list_weights_files, open_run
from viaduct.training.scoring import score_checkpoints


def test_a_prepared_image_is_the_input_of_evaluation(classifier: Classifier) -> None:
    source = classifier.recipe.data
    images = source.load(None)
    stream = source.open_batches(images.validation, device=torch.device("cpu"), train=False, seed=0)
    with stream as batches:
        batch = next(iter(batches.epoch(0)))
    for position in (0, 7):
        prepared = classifier.prepare(encode_png(images.validation.images[position]))
        assert np.array_equal(prepared, batch.images[position].permute(1, 2, 0).numpy())


def test_the_names_of_the_classes_come_from_the_run(classifier: Classifier, shapes_run: Path) -> None:
    assert classifier.labels[:2] == ("disc", "square")
    assert json.loads((shapes_run / "labels.json").read_text())["labels"] == list(classifier.labels)


def test_a_run_without_checkpoints_is_opened_by_its_final_weights(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    final, newest = open_run(copy), open_run(shapes_run)
    assert list(final.weights_sha256) == ["run/model.safetensors"]
    for name, tensor in newest.network.state_dict().items():
        assert torch.equal(final.network.state_dict()[name], tensor)


def test_checksums_of_weights_are_those_of_the_files(shapes_run: Path) -> None:
    name = "shapes/checkpoints/step-12/model.safetensors"
    expected = hashlib.sha256((shapes_run.parent / name).read_bytes()).hexdigest()
    assert open_run(shapes_run).weights_sha256 == {name: expected}


def test_all_files_of_a_tensorflow_checkpoint_and_no_other_have_checksums(tmp_path: Path) -> None:
    parts = ["model.ckpt-5.data-00000-of-00001", "model.ckpt-5.index"]
    for name in (*parts, "model.ckpt-5.meta", "model.ckpt-50.index", "checkpoint"):
        (tmp_path / name).touch()
    assert sorted(file.name for file in list_weights_files(tmp_path / "model.ckpt-5", averaged=False)) == parts


def test_a_run_without_checkpoints_is_scored_by_its_final_weights(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    flags: dict[str, Any] = {"data": None, "device": "cpu", "precision": None, "step": None, "every": False}
    (expected,), (found,) = score_checkpoints(shapes_run, **flags), score_checkpoints(copy, **flags)
    assert found["top1"] == expected["top1"]
    assert found["loss"] == expected["loss"]


def test_damaged_labels_are_named(shapes_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy)
    (copy / "labels.json").write_text('{"labels": [1, 2]}')
    with pytest.raises(BadRun, match=r"labels\.json is damaged"):
        open_run(copy)


MODEL, STATE = "model.safetensors", "state.pt"


@pytest.fixture
def run(shapes_run: Path, tmp_path: Path) -> Path:
    """A run with checkpoints of the steps 4, 8 and 12."""
    copy = tmp_path / "run"
    shutil.copytree(shapes_run, copy)
    for other in (copy / "checkpoints").glob("step-*"):
        if other.name != "step-12":
            shutil.rmtree(other)
    checkpoint = copy / "checkpoints" / "step-12"
    for step in (4, 8):
        shutil.copytree(checkpoint, checkpoint.with_name(f"step-{step}"))
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        (checkpoint.with_name(f"step-{step}") / "manifest.json").write_text(json.dumps({**manifest, "step": step}))
    return copy


@pytest.fixture
def damage(run: Path) -> Callable[[int, str], Path]:
    """Return a function that flips a bit in a file of a checkpoint."""

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


def test_a_damaged_step_that_was_requested_is_named_with_those_that_are_whole(
    run: Path, damage: Callable[[int, str], Path]
) -> None:
    file = damage(8, MODEL)
    with pytest.raises(BadRun, match="the checkpoint of step 8 is damaged") as raised:
        open_run(run, step=8)
    assert str(file) in raised.value.message
    assert raised.value.hints == ("The checkpoints of steps 4, 12 are undamaged.",)


def test_a_skipped_checkpoint_says_which_is_used_instead(
    run: Path, damage: Callable[[int, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = damage(12, MODEL)
    assert open_run(run).step == 8
    skipped, instead = capsys.readouterr().err.splitlines()
    assert skipped.startswith(f"Skipping a damaged checkpoint: {file} ")
    assert instead == "Using the checkpoint of step 8 instead."


@pytest.mark.parametrize("step", [None, 12])
def test_damage_to_files_that_only_training_needs_is_ignored(
    step: int | None, run: Path, damage: Callable[[int, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = damage(12, STATE)
    assert open_run(run, step=step).step == 12
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file} ")
    assert line.endswith("Training cannot continue from step 12; model.safetensors is undamaged and is used.")


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
