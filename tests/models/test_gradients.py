"""Gradients are those that differences of the loss say, in float64, on a small network of every family.

Along a random direction v in the space of all parameters, (loss(w + hv) - loss(w - hv)) / 2h must be v * gradient.
h is small enough to step over no kink of a ReLU or a max pool, which would spoil the difference, not the gradient.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct import models

STEP = 1e-8
FAMILIES: dict[str, dict[str, Any]] = {
    "resnet18_v1": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet50_v1": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet18_v2": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet50_v2": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet20_cifar": {"blocks": (1, 1, 1)},
    "resnet50_book": {"blocks": (1, 2), "filters": (4, 8)},
    "resnet50_v15": {"blocks": (1, 2), "filters": (4, 8)},
    "resnext50": {"blocks": (1, 2), "filters": (32, 64), "stem_filters": 8},
    "amoebanet_d": {"cells": 3, "filters": 16, "stem_filters": 8, "image": 67, "dropout_keep": 1.0},
}


def small(name: str, training: bool) -> nn.Module:
    """A network with nothing at zero or one, so that every parameter matters."""
    torch.manual_seed(3)
    network = models.build(name, classes=5, **FAMILIES[name]).double().train(training)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
            nn.init.normal_(layer.running_mean, std=0.2)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            layer.momentum = 0.0  # so that no loss depends on those taken before it
        elif isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return network


def loss_of(network: nn.Module, images_NCHW: Tensor) -> Tensor:
    labels = torch.arange(len(images_NCHW))
    answer = network(images_NCHW)
    if isinstance(answer, tuple):
        return F.cross_entropy(answer[0], labels) + 0.4 * F.cross_entropy(answer[1], labels)
    return F.cross_entropy(answer, labels)


def loss_at(network: nn.Module, images_NCHW: Tensor, direction: list[Tensor], distance: float) -> float:
    parameters = list(network.parameters())
    with torch.no_grad():
        torch._foreach_add_(parameters, direction, alpha=distance)
        loss = loss_of(network, images_NCHW).item()
        torch._foreach_add_(parameters, direction, alpha=-distance)
    return loss


def random_direction(network: nn.Module, seed: int) -> list[Tensor]:
    """Random direction, scaled by each parameter's size."""
    torch.manual_seed(seed)
    parameters = [parameter.detach() for parameter in network.parameters()]
    return [torch.randn_like(each) * (each.square().mean().sqrt() + 0.01) for each in parameters]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_is_the_slope_of_the_loss(name: str, training: bool) -> None:
    network = small(name, training)
    size = FAMILIES[name].get("image", 29)
    images_NCHW = torch.randn(3, 3, size, size, dtype=torch.float64)
    loss_of(network, images_NCHW).backward()
    used = {key: value for key, value in network.named_parameters() if training or not key.startswith("aux.")}
    assert all(value.grad is not None for value in used.values())
    for seed in range(3):
        direction = random_direction(network, seed)
        pairs = zip(network.parameters(), direction, strict=True)
        slope = sum((each.grad * offset).sum().item() for each, offset in pairs if each.grad is not None)
        ahead, behind = (loss_at(network, images_NCHW, direction, sign * STEP) for sign in (1, -1))
        assert (ahead - behind) / (2 * STEP) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_of_every_single_layer_is_its_own_slope(name: str) -> None:
    """A wrong gradient in one layer could hide among the others."""
    network = small(name, training=True)
    size = FAMILIES[name].get("image", 29)
    images_NCHW = torch.randn(2, 3, size, size, dtype=torch.float64)
    loss_of(network, images_NCHW).backward()
    layers = list(network.named_parameters())
    generator = torch.Generator().manual_seed(5)
    chosen = torch.randperm(len(layers), generator=generator)[:12].tolist()
    scale = max(value.grad.norm().item() for _, value in layers if value.grad is not None)
    for index in chosen:
        key, parameter = layers[index]
        offset = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        direction = [offset if each is parameter else torch.zeros_like(each) for _, each in layers]
        ahead, behind = (loss_at(network, images_NCHW, direction, sign * STEP) for sign in (1, -1))
        assert parameter.grad is not None
        slope = (parameter.grad * offset).sum().item()
        assert (ahead - behind) / (2 * STEP) == pytest.approx(slope, rel=1e-4, abs=1e-6 * scale), key
