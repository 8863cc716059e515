"""A small ResNet, and its weights as MindSpore's model zoo names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from viaduct import models

SMALL: dict[str, Any] = {"blocks": (1, 1, 1, 1), "filters": (4, 8, 16, 32)}


def build(name: str = "resnet50_book", classes: int = 5, **options: Any) -> torch.nn.Module:
    """A network with other statistics than a fresh one has."""
    torch.manual_seed(1)
    model = models.build(name, classes, **(options or SMALL))
    for name, tensor in model.state_dict().items():
        if "num_batches" not in name:
            tensor.copy_(torch.rand(tensor.shape))
    return model


def in_zoo(model: torch.nn.Module, prefix: str = "") -> dict[str, np.ndarray]:
    """The weights of a small ResNet as MindSpore's model zoo names them, written out by hand."""
    ours = {name: tensor.numpy() for name, tensor in model.state_dict().items() if "num_batches" not in name}
    theirs = {"end_point.weight": ours.pop("head.weight"), "end_point.bias": ours.pop("head.bias")}
    leaves = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    for name, array in ours.items():
        module, leaf = name.rsplit(".", 1)
        module = module.replace("stem.conv", "conv1").replace("stem.norm", "bn1")
        for stage in range(4):
            module = module.replace(f"stages.{stage}.", f"layer{stage + 1}.")
        module = module.replace("shortcut.conv", "down_sample_layer.0").replace("shortcut.norm", "down_sample_layer.1")
        if "norm" in name:
            leaf = leaves[leaf]
        theirs[f"{module.replace('norm', 'bn')}.{leaf}"] = array
    return {prefix + name: array for name, array in theirs.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
