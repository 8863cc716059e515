"""Networks of other packages in training: resumed bit for bit, fine-tuned, frozen; images as their source has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from training.test_loop import interrupted_at, resume_training, same
from training.tiny_runs import CLASSES, RECIPE, build_training, change_part, copy_weights, train_recipe
from viaduct import models
from viaduct.data.pillow_views import parse_name
from viaduct.errors import BadValue
from viaduct.recipes import Amoebanet, Init, Recipe, Records, Shapes, load
from viaduct.training.freezing import freeze
from viaduct.training.networks import apply_source_settings, build_model, place_model
from viaduct.training.rundir import RunDir
from viaduct.training.transfer import load_initial_weights

pytestmark = pytest.mark.usefixtures("stand_in_packages")
FOREIGN = ["timm:tiny_conv", "timm:tiny_vit", "torchvision:tiny"]


@pytest.mark.parametrize("model", FOREIGN)
def test_a_run_is_resumed_bit_for_bit(model: str, run: RunDir) -> None:
    recipe = replace(RECIPE, model=model)
    expected = copy_weights(train_recipe(recipe, run))
    assert not same(expected, copy_weights(build_training(recipe, run)))
    assert same(copy_weights(resume_training(recipe, run, interrupted_at(5, recipe, run))), expected)


def test_published_weights_of_other_classes_leave_the_classifier_as_it_begins(run: RunDir, tmp_path: Path) -> None:
    published = models.build("timm:tiny_vit", classes=1000).state_dict()
    save_file(published, tmp_path / "published.safetensors")
    init = Init(source=str(tmp_path / "published.safetensors"))
    made = build_training(replace(RECIPE, model="timm:tiny_vit", init=init), run)
    before = made.model.state_dict()["head.fc.weight"].clone()
    lines = load_initial_weights(made.train_step)
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


CPU = torch.device("cpu")


def lies_channels_last(x_NCHW: Tensor) -> bool:
    """Also a view of something that does: AmoebaNet's reductions read every other pixel, and give half of a state."""
    return x_NCHW.stride(1) == 1


@contextmanager
def watching(network: nn.Module) -> Iterator[list[str]]:
    """The convolutions that were given something in another layout, forwards or backwards."""
    wrong: list[str] = []

    def watch(name: str, layer: nn.Module) -> Any:
        def check_layout(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
            if not lies_channels_last(given[0]):
                wrong.append(f"{name} forwards")
            made.register_hook(lambda slope: None if lies_channels_last(slope) else wrong.append(f"{name} backwards"))  # type: ignore[no-untyped-call]

        return layer.register_forward_hook(check_layout)

    hooks = [watch(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    yield wrong
    for hook in hooks:
        hook.remove()


def one_step(network: nn.Module, compute: torch.dtype, size: int) -> None:
    images = torch.randn(2, 3, size, size).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", compute, enabled=compute != torch.float32):
        made = network(images)
    heads = made if isinstance(made, tuple) else (made,)
    torch.stack([F.cross_entropy(logits.float(), torch.tensor([0, 1])) for logits in heads]).sum().backward()  # type: ignore[no-untyped-call]


NETWORKS = [
    ("resnet50_v1", {}, 64),
    ("resnet50_v15", {}, 64),
    ("resnet56_cifar", {}, 32),
    ("resnext50", {}, 64),
    ("amoebanet_d", {"cells": 3, "filters": 64, "image": 96}, 96),  # fewer: 1x7_7x1 would have one channel
]


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("name", "options", "size"), NETWORKS, ids=[name for name, _, _ in NETWORKS])
def test_every_convolution_reads_and_gets_back_channels_last(
    name: str, options: dict[str, Any], size: int, compute: torch.dtype
) -> None:
    network = place_model(models.build(name, classes=10, **options).train(), CPU)
    with watching(network) as wrong:
        one_step(network, compute, size)
    assert wrong == []


def test_a_layer_that_leaves_channels_last_is_noticed() -> None:
    leaving = [nn.Flatten(2), nn.Unflatten(2, (6, 6))]
    first = nn.Conv2d(3, 8, 3)
    first.register_forward_hook(lambda module, given, made: made.contiguous())
    network = place_model(nn.Sequential(first, *leaving, nn.Conv2d(8, 4, 6), nn.Flatten()), CPU)
    with watching(network) as wrong:
        one_step(network, torch.float32, 8)
    assert "3 forwards" in wrong


TINY = Recipe(
    model="amoebanet_d",
    data=Shapes(global_batch=4, size=72, train_images=8, validation_images=4),
    network=Amoebanet(cells=3, filters=16, drop_path_keep=0.7, drop_path_version="v3"),
)


def test_amoebanet_is_built_with_the_settings_and_the_image_size_of_its_recipe() -> None:
    network = build_model(TINY).train()
    assert (network.drop_path_keep, network.drop_path_version) == (0.7, "v3")
    logits, auxiliary = network(torch.zeros(2, 3, 72, 72))
    assert logits.shape == auxiliary.shape == (2, 10)
    alone = build_model(change_part(TINY, "network", aux=False)).train()
    assert alone(torch.zeros(2, 3, 72, 72)).shape == (2, 10)


def test_settings_of_another_network_are_refused() -> None:
    with pytest.raises(BadValue, match=r"settings of Amoebanet, which 'resnet20_cifar'(.|\n)*--set network=none"):
        build_model(replace(TINY, model="resnet20_cifar"))
