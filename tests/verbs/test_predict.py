"""`viaduct predict` with weights that viaduct did not train: every kind of file, and as many classes as they have."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from forked_viaduct import viaduct
from viaduct.data.png import encode_png
from viaduct.models import build
from viaduct.verbs.predict import start_engine
from viaduct.weights import mindspore_names
from viaduct.weights.exporting import write_safetensors
from viaduct.weights.mindspore import write_mindspore

OUTPUTS = 7
RECIPE = """\
from viaduct.recipes import Records, Recipe

recipe = Recipe(model="resnet20_quick", data=Records(global_batch=4, size=32, classes=4, preprocess="v15"), steps=6)
"""
OWN = """\
from torch import nn
from viaduct.recipes import Records, Recipe

def network(classes):
    return nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, classes))

recipe = Recipe(model=network, data=Records(global_batch=4, size=32, classes=4), steps=6)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(RECIPE)
    (tmp_path / "own.py").write_text(OWN)
    pixels = np.random.default_rng(1).integers(0, 256, (48, 40, 3), np.uint8)
    (tmp_path / "photo.png").write_bytes(encode_png(pixels))
    return tmp_path


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    torch.manual_seed(3)
    return dict(build("resnet20_quick", classes=OUTPUTS).state_dict())


def write_weights(name: str, folder: Path, tensors: dict[str, Tensor]) -> None:
    path = folder / name
    if name.endswith(".safetensors"):
        write_safetensors(path, tensors, {"format": "pt"})
    elif name.endswith(".pth"):
        torch.save({"state_dict": {f"module.{key}": value for key, value in tensors.items()}}, path)
    else:
        links = mindspore_names.list_layouts(build("resnet20_quick", classes=OUTPUTS))["own"]
        write_mindspore(path, {link.variables[0]: tensors[link.tensor] for link in links})


def read_document(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    done = viaduct("predict", *words, "photo.png", "--top", "99", "--json", "--device", "cpu", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def list_probabilities(document: dict[str, Any]) -> list[float]:
    predictions = document["images"][0]["predictions"]
    return [each["probability"] for each in sorted(predictions, key=lambda each: each["index"])]


def test_all_kinds_of_files_give_the_same_probabilities(folder: Path, tensors: dict[str, Tensor]) -> None:
    found = []
    for name in ("own.safetensors", "theirs.pth", "mindspore.ckpt"):
        write_weights(name, folder, tensors)
        document, stderr = read_document(folder, name, "--recipe", "small.py")
        assert "The weights have 7 outputs; the recipe's 4 are not used." in stderr
        found.append(list_probabilities(document))
    assert len(found[0]) == OUTPUTS
    assert found[0] == found[1] == found[2]


def test_outputs_of_a_network_of_the_users_come_from_its_shapes(folder: Path) -> None:
    torch.manual_seed(0)
    parts = {"0.weight": (8, 3, 5, 5), "0.bias": (8,), "3.weight": (OUTPUTS, 392), "3.bias": (OUTPUTS,)}
    torch.save({name: torch.randn(shape) for name, shape in parts.items()}, folder / "own.pth")
    document, _ = read_document(folder, "own.pth", "--recipe", "own.py")
    assert len(list_probabilities(document)) == OUTPUTS


def test_classes_that_were_given_are_not_changed(folder: Path, tensors: dict[str, Tensor]) -> None:
    write_weights("own.safetensors", folder, tensors)
    for flags in (["--classes", "9"], ["--set", "data.classes=9"]):
        done = viaduct("predict", "own.safetensors", "photo.png", "--recipe", "small.py", *flags, cwd=folder)
        assert done.returncode == 2
        assert "has 7 classes, this network 9" in done.stderr


def test_averages_that_do_not_exist_are_not_claimed(folder: Path, tensors: dict[str, Tensor]) -> None:
    write_weights("mindspore.ckpt", folder, tensors)
    (folder / "small.py").write_text(
        RECIPE.replace("steps=6", "steps=6, ema=Ema(0.9)").replace("import", "import Ema,")
    )
    document, _ = read_document(folder, "mindspore.ckpt", "--recipe", "small.py")
    assert document["averaged"] is False


def test_labels_name_the_outputs(folder: Path, tensors: dict[str, Tensor]) -> None:
    write_weights("own.safetensors", folder, tensors)
    (folder / "names.txt").write_text("".join(f"animal {letter}\n" for letter in "abcdefg"))
    flags = ("own.safetensors", "--recipe", "small.py", "--labels", "names.txt")
    document, stderr = read_document(folder, *flags)
    assert sorted(each["label"] for each in document["images"][0]["predictions"])[0] == "animal a"
    assert "only numbers" not in stderr


def test_kernels_are_chosen_for_the_batch_size_of_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []

    def build_engine(*arguments: Any, fold: bool, batch: int) -> SimpleNamespace:
        batches.append(batch)
        return SimpleNamespace(note="")

    monkeypatch.setattr("viaduct.handover.engine.build_engine", build_engine)
    for kind, batch in (("cpu", None), ("cuda", None), ("cuda", 8)):
        monkeypatch.setattr("viaduct.devices.pick", lambda name, kind=kind: (None, torch.device(kind)))
        start_engine(cast(Any, None), "auto", None, True, batch)
    assert batches == [32, 128, 8]


def test_weights_without_a_recipe_are_told_which_fits(folder: Path, tensors: dict[str, Tensor]) -> None:
    write_weights("own.safetensors", folder, tensors)
    done = viaduct("predict", "own.safetensors", "photo.png", cwd=folder)
    assert done.returncode == 2
    assert "--recipe shapes_taster" in done.stderr


def test_a_network_that_does_not_fit_is_refused(folder: Path, tensors: dict[str, Tensor]) -> None:
    write_weights("theirs.pth", folder, tensors)
    done = viaduct("predict", "theirs.pth", "photo.png", "--recipe", "own.py", cwd=folder)
    assert done.returncode == 2
    assert "does not hold this network" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [["predict", "photo.png"], ["evaluate"]])
def test_weights_of_another_network_name_the_recipes_that_they_fit(
    verb: list[str], folder: Path, tensors: dict[str, Tensor]
) -> None:
    write_weights("model.safetensors", folder, tensors)
    words = [verb[0], "model.safetensors", *verb[1:], "--recipe", "shapes_taster", "--set", "model=resnet18_v1"]
    done = viaduct(*words, cwd=folder)
    assert done.returncode == 2
    assert "does not hold this network" in done.stderr
    assert "It looks like resnet20_cifar or resnet20_quick: --recipe " in done.stderr
    assert "--init-exclude" not in done.stderr
