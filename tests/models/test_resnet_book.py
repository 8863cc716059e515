"""The book's ResNet-50: what its listing says and what it leaves to the model zoo."""

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
    built = models.build("resnet50_book", classes=10)
    assert isinstance(built, ResNet)
    return built


def test_only_the_classifier_has_a_bias(network: ResNet) -> None:
    assert all(layer.bias is None for layer in network.modules() if isinstance(layer, nn.Conv2d))
    assert not network.head.bias.any()


def test_every_strided_convolution_pads_same(network: ResNet) -> None:
    strided = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d) and layer.stride != (1, 1)]
    assert len(strided) == 7
    assert all(isinstance(layer, SameConv2d) for layer in strided)


def test_weights_start_normal_with_deviation_of_a_hundredth(network: ResNet) -> None:
    for layer in (network.stem.conv, network.stages[2][1].conv2, network.head):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.03)


def test_gamma_starts_at_zero_in_the_last_norm_of_a_block_only(network: ResNet) -> None:
    gammas = {
        path: layer.weight.unique().tolist()
        for path, layer in network.named_modules()
        if isinstance(layer, nn.BatchNorm2d)
    }
    assert gammas == {path: [0.0] if path.endswith("norm3") else [1.0] for path in gammas}


def test_the_projection_is_applied(network: ResNet) -> None:
    # With a last gamma of zero, all that a first block gives is its projection.
    block = network.stages[1][0]
    features = torch.rand(2, 256, 8, 8)
    torch.testing.assert_close(block(features), block.shortcut(features).relu())
