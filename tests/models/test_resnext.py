"""ResNeXt: its groups, its padding, its first step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.models.padding import SameConv2d
from viaduct.models.resnet import ResNet


@pytest.fixture(scope="module")
def network() -> ResNet:
    torch.manual_seed(0)
    built = models.build("resnext50", classes=10)
    assert isinstance(built, ResNet)
    return built


def test_only_the_middle_convolution_works_in_groups(network: ResNet) -> None:
    groups = {
        path.rpartition(".")[2]: layer.groups
        for path, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d) and path.startswith("stages")
    }
    assert groups == {"conv": 1, "conv1": 1, "conv2": 32, "conv3": 1}


def test_widths_are_those_of_32x4d(network: ResNet) -> None:
    shapes = [tuple(stage[0].conv2.weight.shape) for stage in network.stages]
    assert shapes == [(128, 4, 3, 3), (256, 8, 3, 3), (512, 16, 3, 3), (1024, 32, 3, 3)]


def test_strided_blocks_pad_same_and_the_stem_evenly(network: ResNet) -> None:
    assert all(isinstance(stage[0].conv2, SameConv2d) for stage in list(network.stages)[1:])
    assert network.stem.conv.padding == (3, 3)


def test_gamma_starts_at_zero_in_the_last_norm_of_a_block_only(network: ResNet) -> None:
    norms = {path: layer for path, layer in network.named_modules() if isinstance(layer, nn.BatchNorm2d)}
    assert len(norms) == 53
    assert {path for path, norm in norms.items() if not norm.weight.any()} == {
        path for path in norms if path.endswith("norm3")
    }


@pytest.mark.parametrize(("name", "blocks"), [("resnext101", (3, 4, 23, 3)), ("resnext152", (3, 8, 36, 3))])
def test_deeper_ones_have_the_usual_numbers_of_blocks(name: str, blocks: tuple[int, ...]) -> None:
    with torch.device("meta"):
        network = models.build(name)
    assert tuple(map(len, network.stages)) == blocks
