"""A block is taken over only if it computes what its layers suggest."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernels.foreign_blocks import FOREIGN, TimmBottleneck, TimmRegNetBottleneck, TorchvisionBottleneck
from viaduct.kernels.parts import BottleneckParts
from viaduct.kernels.self_check import check_block

DIFFERENT = "it does not compute what a bottleneck of its layers does"


class Doubled(TorchvisionBottleneck):
    """Another forward pass over the same layers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


class WithoutLastReLU(TorchvisionBottleneck):
    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return self.bn3(self.conv3(out)) + x


class PreActivated(TorchvisionBottleneck):
    def forward(self, x: Tensor) -> Tensor:
        return self.bn3(self.conv3(F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(F.relu(x))))))))) + x


class Detached(TorchvisionBottleneck):
    """Equal outputs, other gradients."""

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(out)) + x.detach())


class Dropping(TorchvisionBottleneck):
    """Stochastic depth by a function; it seldom drops."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if torch.rand(()) < 1e-6 else super().forward(x)


class NumpyDropping(TorchvisionBottleneck):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) if np.random.rand() < 1e-6 else super().forward(x)


class Counting(TorchvisionBottleneck):
    passes = 1000

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return super().forward(x)


class Single(TorchvisionBottleneck):
    """Kernel that computes in another precision than its input's."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).float().double()


class Failing(TorchvisionBottleneck):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("images of 224 pixels only")


class Frozen(TorchvisionBottleneck):
    """Its norms use the running statistics also in training."""

    def forward(self, x: Tensor) -> Tensor:
        self.bn1.eval()
        return super().forward(x)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Doubled, DIFFERENT),
        (WithoutLastReLU, DIFFERENT),
        (PreActivated, DIFFERENT),
        (Detached, DIFFERENT),
        (Single, DIFFERENT),
        (Frozen, DIFFERENT),
        (Dropping, "it draws random numbers in training"),
        (NumpyDropping, "it draws random numbers in training"),
        (Counting, "a pass changes its attribute passes"),
        (Failing, "its forward pass cannot be checked (ValueError: images of 224 pixels only)"),
    ],
)
def test_a_subclass_with_another_forward_pass_is_refused(kind: type[TorchvisionBottleneck], reason: str) -> None:
    assert check_block(kind(64, 16, 64)) == reason


def test_a_norm_of_zeros_hides_nothing() -> None:
    block = Doubled(64, 16, 64)
    nn.init.zeros_(block.bn3.weight)
    assert check_block(block) == DIFFERENT


def test_a_block_without_shortcut_is_refused() -> None:
    """timm's RegNet means none by None, torchvision's ResNet the input."""
    block = TimmRegNetBottleneck(48, 48)
    block.downsample = None
    assert check_block(block) == DIFFERENT


@pytest.mark.parametrize("kind", FOREIGN)
def test_blocks_of_other_packages_pass(kind: str) -> None:
    for block in FOREIGN[kind]().children():
        assert isinstance(check_block(block), BottleneckParts)


def test_a_subclass_that_changes_nothing_passes() -> None:
    assert isinstance(check_block(type("Renamed", (TimmBottleneck,), {})(32, 16, 64, 2)), BottleneckParts)


@pytest.mark.parametrize("training", [True, False])
def test_the_check_leaves_block_and_random_states_alone(training: bool) -> None:
    block = TorchvisionBottleneck(32, 16, 64, 2).train(training)
    block.conv1.weight.requires_grad_(False)
    before, attributes = copy.deepcopy(block.state_dict()), dict(vars(block))
    states = random.getstate(), torch.get_rng_state()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert isinstance(check_block(block), BottleneckParts)
    assert all(torch.equal(tensor, before[name]) for name, tensor in block.state_dict().items())
    assert dict(vars(block)) == attributes
    assert block.training == training
    assert not block.conv1.weight.requires_grad
    assert all(parameter.grad is None for parameter in block.parameters())
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


def test_a_block_in_half_precision_is_checked_in_float64() -> None:
    block = TorchvisionBottleneck(32, 16, 64, 2).to(torch.bfloat16)
    assert isinstance(check_block(block), BottleneckParts)
    assert block.conv1.weight.dtype == torch.bfloat16
