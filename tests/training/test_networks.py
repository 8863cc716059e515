"""Networks of other packages in training: resumed bit for bit, fine-tuned, frozen; images as their source has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from training.test_loop import interrupted_at, resumed, same
from training.tiny import CLASSES, RECIPE, trained, training, weights
from viaduct import models
from viaduct.data.source_views import parse_name
from viaduct.recipes import Init, Records, load
from viaduct.training.freezing import freeze
from viaduct.training.networks import apply_source_settings
from viaduct.training.rundir import RunDir
from viaduct.training.transfer import load_initial_weights

pytestmark = pytest.mark.usefixtures("stand_in_packages")
FOREIGN = ["timm:tiny_conv", "timm:tiny_vit", "torchvision:tiny"]


@pytest.mark.parametrize("model", FOREIGN)
def test_a_run_is_resumed_bit_for_bit(model: str, run: RunDir) -> None:
    recipe = replace(RECIPE, model=model)
    expected = weights(trained(recipe, run))
    assert not same(expected, weights(training(recipe, run)))
    assert same(weights(resumed(recipe, run, interrupted_at(5, recipe, run))), expected)


def test_published_weights_of_other_classes_leave_the_classifier_as_it_begins(run: RunDir, tmp_path: Path) -> None:
    published = models.build("timm:tiny_vit", classes=1000).state_dict()
    save_file(published, tmp_path / "published.safetensors")
    init = Init(source=str(tmp_path / "published.safetensors"))
    made = training(replace(RECIPE, model="timm:tiny_vit", init=init), run)
    before = made.model.state_dict()["head.fc.weight"].clone()
    lines = load_initial_weights(made)
    state = made.model.state_dict()
    assert torch.equal(state["patch_embed.weight"], published["patch_embed.weight"])
    assert torch.equal(state["head.fc.weight"], before)
    assert any(f"begins anew: 1,000 classes there, {CLASSES} here" in line for line in lines)


def test_all_but_head_means_the_classifier_whatever_it_is_called() -> None:
    network = models.build("torchvision:tiny", classes=3)
    freeze(network, "all but head")
    assert [name for name, value in network.named_parameters() if value.requires_grad] == ["fc.weight", "fc.bias"]


def test_images_are_prepared_as_the_source_says() -> None:
    recipe = replace(load("imagenet_modern").recipe, model="timm:tiny_vit")
    found = apply_source_settings(recipe).data
    assert isinstance(found, Records)
    assert found.size == 32
    views = parse_name(found.preprocess)
    assert (views.interpolation, views.crop_share, views.deviation) == ("bicubic", 0.9, (0.5, 0.25, 0.5))
    assert apply_source_settings(recipe, keep_size=True).data.size == 224


def test_images_of_our_own_networks_are_prepared_as_their_family_says() -> None:
    found = apply_source_settings(load("imagenet_modern").recipe).data
    assert isinstance(found, Records)
    assert (found.preprocess, found.size) == ("v15", 224)
    small = replace(load("finetune").recipe, model="resnet20_cifar")
    assert apply_source_settings(small).data.size == 32
