"""Blocks of torchvision's and timm's models that our kernels fit, where these packages are installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from torch import nn

from viaduct.kernels.parts import BottleneckParts
from viaduct.kernels.self_check import check_block

# Model, blocks that fit, and what keeps the others.
MODELS = {
    "torchvision:resnet50": (16, ""),
    "torchvision:resnext50_32x4d": (16, ""),
    "torchvision:regnet_x_400mf": (22, ""),
    "torchvision:regnet_y_400mf": (0, "f.se is of type SqueezeExcitation"),
    "torchvision:resnet18": (0, "it has two convolutions"),
    "timm:resnet50": (16, ""),
    "timm:resnext50_32x4d": (16, ""),
    "timm:resnet50d": (13, "downsample.0 is of type AvgPool2d"),
    "timm:seresnet50": (0, "se is of type SEModule"),
    "timm:regnetx_004": (22, ""),
}


def build_model(name: str) -> nn.Module:
    package, _, model = name.partition(":")
    try:
        module: Any = import_module("torchvision.models" if package == "torchvision" else package)
    except Exception as error:  # a build for another torch fails in its own ways
        pytest.skip(f"{package} does not load: {error}")
    made: nn.Module = getattr(module, model)() if package == "torchvision" else module.create_model(model)
    return made


@pytest.mark.lengthy
@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_the_packages_are_known(name: str) -> None:
    count, reason = MODELS[name]
    found = [outcome for outcome in map(check_block, build_model(name).modules()) if outcome is not None]
    assert sum(isinstance(outcome, BottleneckParts) for outcome in found) == count
    others = [outcome for outcome in found if isinstance(outcome, str)]
    assert all(outcome.startswith(reason) for outcome in others)
    assert bool(others) == bool(reason)
