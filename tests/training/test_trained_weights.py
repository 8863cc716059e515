"""Weights that viaduct did not train are measured by a recipe, whatever file they come in, or refused by name."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from forked_viaduct import viaduct
from viaduct.errors import BadData, BadValue
from viaduct.models import build
from viaduct.recipes import load
from viaduct.recipes._fields import override
from viaduct.training import checkpoint
from viaduct.training.distributed import ALONE
from viaduct.training.trained_weights import WeightsFile, find_weights, load_weights
from viaduct.verbs._weights import has_enough_outputs
from viaduct.weights import mindspore_names
from viaduct.weights.exporting import write_safetensors
from viaduct.weights.mindspore import write_mindspore
from viaduct.weights.stored import open_weights

NETWORK = "resnet20_quick"


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    torch.manual_seed(3)
    return {name: value.clone() for name, value in build(NETWORK, classes=10).state_dict().items()}


def network() -> nn.Module:
    torch.manual_seed(4)
    return build(NETWORK, classes=10)


def assert_holds(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, value in model.state_dict().items():
        assert torch.equal(value, tensors[name]), name


@pytest.mark.parametrize("name", ["plain.pth", "checkpoint.pth.tar", "wrapped.pt", "own.safetensors"])
def test_every_file_of_tensors_gives_the_network_its_weights(
    tmp_path: Path, tensors: dict[str, Tensor], name: str
) -> None:
    path, model = tmp_path / name, network()
    if name == "own.safetensors":
        write_safetensors(path, tensors, {"format": "pt", "global_step": "7"})
    elif name == "plain.pth":
        torch.save(tensors, path)
    else:
        wrapped = {f"module.{key}": value for key, value in tensors.items()}
        key = "state_dict" if name == "checkpoint.pth.tar" else "model"
        torch.save({"epoch": 3, "global_step": 7, "lr": 0.1, key: wrapped}, path)
    step, _ = WeightsFile(path).load_into(model, None)
    assert step == (None if name == "plain.pth" else 7)
    assert_holds(model, tensors)


def test_a_file_that_may_hold_code_is_not_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(BadData, match="may hold code, and is not opened"):
        WeightsFile(tmp_path / "evil.pth").load_into(network(), None)
    assert not (tmp_path / "made").exists()


def test_what_is_no_file_of_weights_is_refused_by_name(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    torch.save({"accuracy": 0.7}, tmp_path / "figures.pth")
    torch.save(tensors, tmp_path / "whole.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:3000])
    (tmp_path / "text.pth").write_text("weights")
    for name, reason in (
        ("figures.pth", "holds no weights"),
        ("cut.pth", "is cut short or damaged"),
        ("text.pth", "text.pth"),
    ):
        with pytest.raises(BadData, match=reason):
            WeightsFile(tmp_path / name).load_into(network(), None)


def test_weights_of_another_network_leave_it_as_it_was(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.save({**tensors, "head.weight": torch.zeros(3, 64)}, tmp_path / "other.pth")
    with pytest.raises((BadData, BadValue)):
        WeightsFile(tmp_path / "other.pth").load_into(model, None)
    torch.save({name: value for name, value in tensors.items() if "stages.1" not in name}, tmp_path / "half.pth")
    with pytest.raises((BadData, BadValue)):
        WeightsFile(tmp_path / "half.pth").load_into(model, None)
    assert_holds(model, before)


def test_averages_must_be_there_where_they_are_requested(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    torch.save(tensors, tmp_path / "plain.pth")
    with pytest.raises(BadData, match="has no averaged weights"):
        WeightsFile(tmp_path / "plain.pth").load_into(network(), True)
    write_safetensors(tmp_path / "plain.safetensors", tensors, {"format": "pt"})
    with pytest.raises(BadValue, match="no averages"):
        WeightsFile(tmp_path / "plain.safetensors").load_into(network(), True)
    torch.save({"state_dict": tensors, "ema": {k: v * 2 for k, v in tensors.items()}}, tmp_path / "both.pth")
    with open_weights(tmp_path / "both.pth", ema=True) as stored:
        assert torch.equal(stored.read("head.weight"), tensors["head.weight"] * 2)
    model = network()
    WeightsFile(tmp_path / "both.pth").load_into(model, True)
    assert_holds(model, {name: value * 2 for name, value in tensors.items()})


def test_a_name_like_tensorflows_in_another_file_does_not_select_averages(
    tmp_path: Path, tensors: dict[str, Tensor]
) -> None:
    foreign = {"head/kernel/ExponentialMovingAverage": torch.zeros(2)}
    write_safetensors(tmp_path / "odd.safetensors", {**tensors, **foreign}, {"format": "pt"})
    with pytest.raises(BadData, match="does not hold this network"):
        WeightsFile(tmp_path / "odd.safetensors").load_into(network(), None)


def test_a_checkpoint_that_states_no_epoch_is_not_taken_for_epoch_0(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    saved = checkpoint.save(tmp_path / "checkpoints", 5, checkpoint.Snapshot(tensors, {}), notes={})
    step, epoch = load_weights(saved, load("shapes_taster").recipe, network(), ALONE, ema=None)
    assert (step, epoch) == (5, None)


def test_a_folder_is_measured_by_the_steps_of_its_files(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    for name in ("model-1000.pth", "model-20.pth", "model-300.pth"):
        torch.save(tensors, tmp_path / name)
    found = [weights.path.name for weights in find_weights(tmp_path, every=True)]
    assert found == ["model-20.pth", "model-300.pth", "model-1000.pth"]
    with pytest.raises(BadData, match="is a folder with files of weights: 3"):
        find_weights(tmp_path, every=False)
    with pytest.raises(BadValue, match="--all"):
        find_weights(tmp_path / "model-20.pth", every=True)


def test_checkpoints_of_mindspore_are_put_into_the_network(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    model = network()
    own = mindspore_names.list_layouts(model)["own"]
    parameters = {link.variables[0]: tensors[link.tensor] for link in own}
    for name in ("net-10_5.ckpt", "net-9_5.ckpt", "net-10_2.ckpt"):
        write_mindspore(tmp_path / name, {**parameters, "step_num": torch.tensor(50)})
    step, notes = WeightsFile(tmp_path / "net-9_5.ckpt").load_into(model, None)
    assert (step, notes) == (50, [])
    assert_holds(model, tensors)
    found = [weights.path.name for weights in find_weights(tmp_path, every=True)]
    assert found == ["net-9_5.ckpt", "net-10_2.ckpt", "net-10_5.ckpt"]
    with pytest.raises(BadData, match="no exponential moving averages"):
        WeightsFile(tmp_path / "net-9_5.ckpt").load_into(model, True)


def test_evaluate_measures_a_checkpoint_of_tensorflow_as_the_run_that_it_came_from(tmp_path: Path) -> None:
    fields = ("data.train_images=32", "data.validation_images=32", "data.global_batch=16")
    few = [argument for field in fields for argument in ("--set", field)]
    run, prefix = tmp_path / "run", tmp_path / "tf" / "model.ckpt-2"
    viaduct("train", "shapes_taster", "--device", "cpu", "--run", str(run), "--steps", "2", *few)
    viaduct("weights", "export", str(run), "--out", str(prefix))
    ours = json.loads(viaduct("evaluate", str(run), "--device", "cpu", "--json").stdout)
    foreign = ["--recipe", "shapes_taster", "--device", "cpu", *few]
    theirs = json.loads(viaduct("evaluate", str(prefix), "--json", *foreign).stdout)
    assert (theirs["top1"], theirs["loss"], theirs["step"]) == (ours["top1"], ours["loss"], 2)
    table = viaduct("evaluate", str(prefix.parent), "--all", *foreign).stdout
    assert "checkpoint_time(UTC)" in table
    refused = viaduct("evaluate", str(prefix))
    assert refused.returncode == 2
    assert "is not a run" in refused.stderr
    assert "--recipe" in refused.stderr


def test_weights_may_have_more_classes_than_the_images(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("1:cat\n2:dog\n")
    loaded = load("resnext50_imagenet")
    few = replace(loaded, recipe=override(loaded.recipe, "data.classes", "2"))
    assert (has_enough_outputs(loaded, tmp_path), has_enough_outputs(few, tmp_path), has_enough_outputs(few, None)) == (
        True,
        False,
        True,
    )
