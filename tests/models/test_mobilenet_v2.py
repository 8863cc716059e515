"""MobileNetV2: published sizes, and the details that sizes do not show."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.models.mobilenet_v2 import InvertedResidual, round_channels
from viaduct.models.sizes import measure


# 3,504,872 is torchvision's mobilenet_v2(), 6,108,776 its mobilenet_v2(width_mult=1.4); MACs are the paper's.
@pytest.mark.parametrize(
    ("name", "parameters", "millions"), [("mobilenet_v2", 3_504_872, 300), ("mobilenet_v2_140", 6_108_776, 585)]
)
def test_sizes_are_the_published_ones(name: str, parameters: int, millions: int) -> None:
    sizes = measure(name, 1000)
    assert sizes.parameters == parameters
    assert sizes.macs / 1e6 == pytest.approx(millions, rel=0.02)


def test_channels_are_multiples_of_eight_that_lose_at_most_a_tenth() -> None:
    assert [round_channels(channels) for channels in (1, 8, 11, 12, 44.8, 33.6)] == [8, 8, 16, 16, 48, 32]


def test_a_block_adds_its_input_only_where_the_shape_stays() -> None:
    network = models.build("mobilenet_v2", classes=3)
    added = [block.adds_input for block in network.modules() if isinstance(block, InvertedResidual)]
    counts = (1, 2, 3, 4, 3, 3, 1)  # blocks of each stage; the first of each changes channels
    assert added == [index > 0 for count in counts for index in range(count)]


def test_the_branch_has_no_activation_behind_its_last_norm() -> None:
    block = InvertedResidual(8, 8, 1, 6).eval()
    x = torch.randn(2, 8, 5, 5)
    with torch.no_grad():
        nn.init.constant_(block.norm.bias, -100.0)
        assert (block(x) < -50).all()


def test_a_step_changes_every_weight() -> None:
    network = models.build("mobilenet_v2", classes=5).train()
    network(torch.randn(4, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
