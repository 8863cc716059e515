"""ResNet-50 v1.5: where it differs from the official network."""

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
    built = models.build("resnet50_v15", classes=10)
    assert isinstance(built, ResNet)
    return built


def test_every_strided_convolution_pads_same(network: ResNet) -> None:
    strided = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d) and layer.stride != (1, 1)]
    assert len(strided) == 7
    assert all(isinstance(layer, SameConv2d) for layer in strided)


def test_gamma_starts_at_one_everywhere(network: ResNet) -> None:
    assert all(layer.weight.eq(1).all() for layer in network.modules() if isinstance(layer, nn.BatchNorm2d))


def test_weights_start_twice_as_wide(network: ResNet) -> None:
    for layer in (network.stem.conv, network.stages[2][1].conv2, network.head):
        assert layer.weight.var().item() == pytest.approx(2 / layer.weight[0].numel(), rel=0.05)


def test_the_stem_sees_two_cells_before_the_image_and_three_behind(network: ResNet) -> None:
    image = torch.zeros(1, 3, 32, 32)
    image[..., 0, 0] = 1
    with torch.no_grad():
        response = network.stem.conv(image)
    # With (3, 3), the first window would see the corner at (3, 3), and the second one at (1, 1).
    torch.testing.assert_close(response[0, :, 0, 0], network.stem.conv.weight[:, :, 2, 2].sum(1))
    torch.testing.assert_close(response[0, :, 1, 1], network.stem.conv.weight[:, :, 0, 0].sum(1))
