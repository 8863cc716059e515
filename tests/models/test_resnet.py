"""The official ResNet: its names, its constants, its first step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.models.resnet import BasicBlock, BasicBlock2, Block, Bottleneck, Bottleneck2, Style


def norms(name: str) -> list[nn.BatchNorm2d]:
    with torch.device("meta"):
        network = models.build(name, classes=10)
    return [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]


def test_layers_stand_in_tensorflows_order() -> None:
    with torch.device("meta"):
        network = models.build("resnet50_v1")
    convolutions = [name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == len(norms("resnet50_v1")) == 53
    assert convolutions[:6] == [
        "stem.conv",
        "stages.0.0.shortcut.conv",
        "stages.0.0.conv1",
        "stages.0.0.conv2",
        "stages.0.0.conv3",
        "stages.0.1.conv1",
    ]
    assert list(network.state_dict())[-2:] == ["head.weight", "head.bias"]


def test_version_2_stands_in_tensorflows_order_too() -> None:
    with torch.device("meta"):
        network = models.build("resnet50_v2")
    kinds = (nn.Conv2d, nn.BatchNorm2d)
    layers = [name for name, layer in network.named_modules() if isinstance(layer, kinds)]
    assert layers[:9] == [
        "stem.conv",
        "stages.0.0.norm1",
        "stages.0.0.projection",
        "stages.0.0.conv1",
        "stages.0.0.norm2",
        "stages.0.0.conv2",
        "stages.0.0.norm3",
        "stages.0.0.conv3",
        "stages.0.1.norm1",
    ]
    assert layers[-1] == "norm"
    assert len(norms("resnet50_v2")) == 49


@pytest.mark.parametrize("block", [BasicBlock2, Bottleneck2])
def test_version_2_carries_the_raw_sum_past_its_block(block: type[BasicBlock2] | type[Bottleneck2]) -> None:
    features = torch.randn(2, 4 * block.expansion, 5, 5)
    humble = block(4 * block.expansion, 4, 1, Style())
    nn.init.zeros_((humble.conv3 if isinstance(humble, Bottleneck2) else humble.conv2).weight)
    assert torch.equal(humble(features), features)


def test_version_2_projects_what_is_activated() -> None:
    block = BasicBlock2(4, 8, 2, Style(), project=True).eval()
    nn.init.zeros_(block.conv2.weight)
    features = -torch.rand(2, 4, 6, 6) - 1
    assert not block(features).any()


@pytest.mark.parametrize(("name", "stages"), [("resnet18_v1", 4), ("resnet50_v1", 4), ("resnet20_cifar", 3)])
def test_only_the_first_block_of_every_stage_projects(name: str, stages: int) -> None:
    with torch.device("meta"):
        keys = models.build(name).state_dict()
    projecting = [key.removesuffix(".shortcut.conv.weight") for key in keys if "shortcut.conv" in key]
    assert projecting == [f"stages.{index}.0" for index in range(stages)]


def test_a_bottleneck_strides_in_its_middle() -> None:
    block = Bottleneck(8, 4, 2, Style(), project=True)
    strides = [layer.stride for layer in (block.conv1, block.conv2, block.conv3)]
    assert strides == [(1, 1), (2, 2), (1, 1)]


@pytest.mark.parametrize(
    ("name", "epsilon", "momentum"),
    [
        ("resnet50_v1", 1e-5, 0.003),
        ("resnet50_v2", 1e-5, 0.003),
        ("resnet56_cifar", 1e-5, 0.003),
        ("resnet50_stem3", 1e-5, 0.1),
        ("resnet50_book", 1e-4, 0.1),
        ("resnet50_v15", 1e-5, 0.1),
        ("resnext50", 1e-4, 0.1),
        ("amoebanet_d", 1e-5, 0.1),
    ],
)
def test_norms_have_the_references_constants(name: str, epsilon: float, momentum: float) -> None:
    assert {(norm.eps, norm.momentum) for norm in norms(name)} == {(epsilon, momentum)}


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_with_gamma_zero_a_block_starts_as_its_shortcut(block: type[BasicBlock] | type[Bottleneck]) -> None:
    features = torch.rand(2, 4 * block.expansion, 5, 5)
    ordinary = block(4 * block.expansion, 4, 1, Style())
    assert not torch.equal(ordinary(features), features)
    humble = block(4 * block.expansion, 4, 1, Style(zero_gamma=True))
    assert torch.equal(humble(features), features)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck, BasicBlock2, Bottleneck2])
def test_a_block_leaves_its_input_as_it_was(block: Block) -> None:
    features = torch.randn(2, 4 * block.expansion, 5, 5)
    kept = features.clone()
    block(4 * block.expansion, 4, 1, Style())(features)
    assert torch.equal(features, kept)


def test_small_images_keep_their_size_through_the_small_stem() -> None:
    with torch.device("meta"):
        network = models.build("resnet50_stem3")
    images = torch.empty(1, 3, 32, 32, device="meta")
    assert network.stem(images).shape == (1, 64, 32, 32)
    assert network.features(images).shape == (1, 2048, 4, 4)
