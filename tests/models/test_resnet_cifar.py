"""The small ResNet: as deep as it says, three stages, no pool."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.models.resnet_cifar import variants


@pytest.mark.parametrize("name", variants)
def test_layers_with_weights_add_up_to_the_depth_in_the_name(name: str) -> None:
    with torch.device("meta"):
        network = models.build(name, classes=10)
    layers = [path for path, layer in network.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    in_line = [path for path in layers if "shortcut" not in path and "projection" not in path]
    assert name.startswith(f"resnet{len(in_line)}_")


def test_stages_see_32_16_and_8_cells() -> None:
    with torch.device("meta"):
        network = models.build("resnet20_cifar", classes=10)
    features = network.stem(torch.empty(1, 3, 32, 32, device="meta"))
    shapes = []
    for stage in network.stages:
        features = stage(features)
        shapes.append(tuple(features.shape[1:]))
    assert shapes == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]
