"""Scores of trained weights, also with averages that were recomputed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from training.tiny_runs import RECIPE, Recorder, build_normed_network, make_images, train_recipe
from training.unsettled_run import SLOW
from viaduct.data.batches import BatchStream
from viaduct.errors import BadValue
from viaduct.recipes import Checkpoint, Ema, Init, LoadedRecipe
from viaduct.training import scoring
from viaduct.training.precision import Computation, PrecisionPlan
from viaduct.training.rundir import RunDir
from viaduct.training.scoring import score_checkpoints


def score_run(run: RunDir, monkeypatch: pytest.MonkeyPatch, **more: Any) -> dict[str, Any]:
    monkeypatch.setattr(RunDir, "load_recipe", lambda self, file=None: LoadedRecipe("tiny", SLOW, "Tiny.", None))
    options = {"data": None, "device": "cpu", "precision": None, "step": None, "every": False}
    (row,) = score_checkpoints(run.path, **{**options, **more})
    return row


def test_recomputed_averages_are_those_of_the_training_batches(
    unsettled_run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = score_run(unsettled_run, monkeypatch)
    file = tmp_path / "better.safetensors"
    after = score_run(unsettled_run, monkeypatch, recompute=10, save=file)
    assert after["top1"] >= before["top1"] + 0.2
    assert after["batch_norm_recomputed_from_batches"] == 10
    stored, saved = load_file(unsettled_run.model), load_file(file)
    changed = {name for name in stored if not torch.equal(stored[name], saved[name])}
    assert changed == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert saved["1.num_batches_tracked"] == 10
    assert score_run(unsettled_run, monkeypatch)["top1"] == before["top1"]  # the run is as it was


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"save": "x.safetensors"}, "--save without --recompute-batch-norm"),
        ({"save": "x.safetensors", "recompute": 1, "every": True}, "--save and --all"),
        ({"save": "x.pt", "recompute": 1}, "must end in .safetensors"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_computed(
    options: dict[str, Any], fragment: str, unsettled_run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options["save"] = tmp_path / options["save"]
    with pytest.raises(BadValue, match=fragment):
        score_run(unsettled_run, monkeypatch, **options)


def test_an_earlier_file_is_not_replaced(
    unsettled_run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.safetensors").write_text("precious")
    with pytest.raises(BadValue, match="is there already"):
        score_run(unsettled_run, monkeypatch, recompute=1, save=tmp_path / "there.safetensors")


def test_freezing_everything_but_the_head_leaves_no_norm(
    unsettled_run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = replace(SLOW, init=Init(freeze="all but 5"))
    monkeypatch.setattr(RunDir, "load_recipe", lambda self, file=None: LoadedRecipe("tiny", frozen, "Tiny.", None))
    with pytest.raises(BadValue, match="no trained batch norm"):
        score_checkpoints(
            unsettled_run.path, data=None, device="cpu", precision=None, step=None, every=False, recompute=1
        )


AVERAGED = replace(RECIPE, model=build_normed_network, ema=Ema(0.8))


FP32 = PrecisionPlan("fp32", False, False)


def computation(model: nn.Module, plan: PrecisionPlan = FP32) -> Computation:
    return Computation(model, plan, torch.device("cpu"))


def validation() -> BatchStream:
    return RECIPE.data.batches(make_images(None).validation, device=torch.device("cpu"), train=False, seed=1)


def test_a_checkpoint_is_scored_by_its_averaged_weights(run: RunDir) -> None:
    recorder = Recorder()
    done = train_recipe(replace(AVERAGED, checkpoint=Checkpoint(every_minutes=0)), run, recorder)
    saved = done.save()
    model = build_normed_network(4)
    row = scoring.score(saved, done.recipe, computation(model), validation(), ("a",))
    assert row["loss"] == pytest.approx(recorder.scores[-1].loss, rel=1e-5)
    raw = scoring.score(saved, replace(done.recipe, ema=None), computation(model), validation(), ("a",))
    assert raw["loss"] != pytest.approx(row["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("row", "has_train", "epoch"),
    [
        ({"epoch": 3.0, "step": 99}, True, 3.0),  # as the checkpoint states it
        ({"epoch": None, "step": 10}, True, 2.0),
        ({"epoch": None, "step": None}, True, None),
        ({"epoch": None, "step": 10}, False, None),
    ],
)
def test_an_epoch_is_computed_only_where_it_is_not_stated(
    row: dict[str, Any], has_train: bool, epoch: float | None
) -> None:
    images = make_images(None)
    object.__setattr__(images, "has_train", has_train)
    assert scoring.find_epoch(row, RECIPE, images) == epoch
