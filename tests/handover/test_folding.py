"""Batch norms folded into convolutions: the same outputs from fewer layers, for every family of networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from viaduct import models
from viaduct.handover.folding import CannotTrace, fold_batch_norms


def randomise_norms(network: nn.Module) -> nn.Module:
    """Give batch norms statistics and weights as of a trained network; fresh ones would hide a wrong formula."""
    generator = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor, low, high in ((layer.running_mean, -0.3, 0.3), (layer.running_var, 0.5, 2.0)):
                assert tensor is not None
                tensor.uniform_(low, high, generator=generator)
            layer.weight.data.uniform_(0.5, 1.5, generator=generator)
            layer.bias.data.uniform_(-0.3, 0.3, generator=generator)
    return network.eval()


@pytest.mark.parametrize(
    ("name", "size", "left", "options"),
    [
        ("resnet18_v1", 64, 0, {}),
        ("resnet18_v2", 64, 9, {}),  # those that follow a sum
        ("resnet20_cifar", 32, 0, {}),
        ("resnet50_v15", 65, 0, {}),
        ("resnext50", 64, 0, {}),
        ("amoebanet_d", 72, 4, {"filters": 48, "cells": 3, "aux": False}),
    ],
)
def test_a_folded_network_computes_the_same(name: str, size: int, left: int, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    network = randomise_norms(models.build(name, classes=7, **options))
    inputs = torch.randn(3, 3, size, size)
    with torch.no_grad():
        folded = fold_batch_norms(network, size)
        expected, found = network(inputs), folded(inputs)
        alone = folded(inputs[:1])  # the batch stays open
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in folded.modules()) == left
    scale = float(expected.abs().max())
    assert torch.allclose(found, expected, atol=1e-5 * scale, rtol=0)
    assert torch.allclose(alone, expected[:1], atol=1e-5 * scale, rtol=0)


def test_the_network_itself_stays_as_it_is() -> None:
    network = randomise_norms(models.build("resnet20_cifar", classes=10))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    fold_batch_norms(network, 32)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


class Shared(nn.Module):
    """One convolution that is used twice, once with a norm behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.conv(self.conv(images))).mean((2, 3))  # type: ignore[no-any-return]


class Branching(Shared):
    """A convolution whose output somebody else reads too."""

    def forward(self, images: Tensor) -> Tensor:
        between = self.conv(images)
        return (self.norm(between) + between).mean((2, 3))  # type: ignore[no-any-return]


class Asking(Shared):
    """A network whose way depends on the values of its input."""

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.conv(images if images.sum() > 0 else -images)).mean((2, 3))  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [Shared, Branching])
def test_a_convolution_used_twice_is_folded_only_where_it_may_be(kind: type[Shared]) -> None:
    network = randomise_norms(kind())
    inputs = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(fold_batch_norms(network, 8)(inputs), network(inputs), atol=1e-6)


def test_a_batch_norm_without_running_statistics_stays() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    inputs = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(fold_batch_norms(network, 8)(inputs), network(inputs))


def test_a_network_whose_control_flow_depends_on_values_is_refused() -> None:
    with pytest.raises(CannotTrace, match="control flow"):
        fold_batch_norms(Asking().eval(), 8)
