"""The number of a network's outputs, read from its weights."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from viaduct import models, recipes
from viaduct.data.cifar10 import Cifar10
from viaduct.handover.outputs import match_outputs


@dataclass(frozen=True)
class FixedClasses(Cifar10):
    """Data of the user's own, whose number of classes cannot be set."""

    classes: int = field(default=10, init=False)


def save_weights(path: Path, classes: int, drop: tuple[str, ...] = ()) -> Path:
    tensors = models.build("resnet18_v1", classes=classes).state_dict()
    save_file({name: tensor for name, tensor in tensors.items() if name not in drop}, path)
    return path


def test_a_recipe_whose_classes_are_fixed_stays_as_it_is(tmp_path: Path) -> None:
    loaded = recipes.load("resnet56_cifar10")
    settable = [each.name for each in fields(FixedClasses) if each.init]
    fixed = FixedClasses(**{name: getattr(loaded.recipe.data, name) for name in settable})
    loaded = replace(loaded, recipe=replace(loaded.recipe, data=fixed))
    assert match_outputs(tmp_path / "never-opened.safetensors", loaded) == (loaded, "")


def test_weights_with_as_many_outputs_as_the_recipe_change_nothing(tmp_path: Path) -> None:
    loaded = recipes.load("resnet18_imagenet")
    assert match_outputs(save_weights(tmp_path / "m.safetensors", loaded.recipe.data.classes), loaded) == (loaded, "")


def test_the_recipe_gets_the_outputs_of_the_weights_and_a_note_says_so(tmp_path: Path) -> None:
    loaded = recipes.load("resnet18_imagenet")
    matched, note = match_outputs(save_weights(tmp_path / "m.safetensors", 7), loaded)
    assert matched.recipe.data.classes == 7
    assert note == "The weights have 7 outputs; the recipe's 1,001 are not used."


@pytest.mark.parametrize("shape", [(5, 4, 3, 2), (5, 3, 7, 7)], ids=["another kernel", "other filters"])
def test_shapes_that_are_another_networks_leave_the_recipe_as_it_is(shape: tuple[int, ...], tmp_path: Path) -> None:
    loaded = recipes.load("resnet18_imagenet")
    save_file({"stem.conv.weight": torch.zeros(shape)}, tmp_path / "m.safetensors")
    assert match_outputs(tmp_path / "m.safetensors", loaded) == (loaded, "")
