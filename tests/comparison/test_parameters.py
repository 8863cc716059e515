"""Weights, their gradients and their updates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comparison.networks import dump_training, find_tensor, values
from viaduct.comparison.records import StoredDump

pytestmark = pytest.mark.usefixtures("one_thread")


def test_gradients_are_recorded_after_clipping_and_updates_are_those_of_sgd(side: StoredDump) -> None:
    gradients = [tensor for tensor in side.tensors if tensor.role == "gradient" and tensor.step == 0]
    assert sum(t.statistics["norm"] ** 2 for t in gradients if t.statistics) ** 0.5 == pytest.approx(0.5, rel=1e-3)
    weight, gradient = values(side, "head", "parameter"), values(side, "head", "gradient")
    update = torch.from_numpy(weight) - 0.1 * torch.from_numpy(gradient) - torch.from_numpy(weight)
    assert np.allclose(values(side, "head", "update"), update.numpy(), atol=1e-8)
    assert find_tensor(side, "head", "update").parameter == "weight"
    assert find_tensor(side, "block.norm", "parameter", 2).parameter == "running_mean"


def test_a_weight_that_two_modules_share_is_recorded_once_with_its_name_in_the_first(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    side = dump_training(tmp_path, model=Shared(model), length=1)
    for role in ("parameter", "gradient", "update"):
        tensors = [(t.op, t.parameter) for t in side.tensors if t.role == role]
        assert sorted(tensors) == [("inner.0", "bias"), ("inner.0", "weight"), ("inner.1", "bias")]


class Shared(nn.Module):
    """Takes the images of `networks.train`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x.mean(2)[:, :, :4].mean(1))
        return logits
