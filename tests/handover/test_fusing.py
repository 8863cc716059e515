"""Sums and ReLUs fused into the convolutions before them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from handover.test_folding import randomise_norms
from viaduct import models
from viaduct.handover.folding import fold_batch_norms
from viaduct.handover.fusing import FusedConv2d, choose_kernels, fuse_convolutions


class Shortcut(nn.Module):
    """Convolution added to a ReLU that modifies the convolution's input afterwards."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, **options)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        x = images * 1.0
        features = self.conv(x)
        return features + self.relu(x)


@pytest.mark.parametrize("options", [{}, {"padding_mode": "reflect"}])
def test_what_fusing_would_change_is_not_fused(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    network, inputs = Shortcut(**options).eval(), torch.randn(2, 3, 8, 8)
    with torch.inference_mode():
        fused = fuse_convolutions(fold_batch_norms(network, 8))
        assert torch.allclose(fused(inputs), network(inputs), atol=1e-6)


def test_a_convolution_with_padding_is_no_matrix_product() -> None:
    assert FusedConv2d(nn.Conv2d(3, 4, 1), relu=True).is_pointwise()
    assert not FusedConv2d(nn.Conv2d(3, 4, 1, padding=1), relu=True).is_pointwise()


@pytest.mark.parametrize(
    ("name", "size", "convolutions"), [("resnet18_v1", 64, 21), ("resnet18_v2", 64, 21), ("resnext50", 64, 53)]
)
def test_sums_and_relus_are_fused_and_nothing_changes(name: str, size: int, convolutions: int) -> None:
    torch.manual_seed(3)
    network = randomise_norms(models.build(name, classes=7))
    inputs = torch.randn(2, 3, size, size).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        fused = fuse_convolutions(fold_batch_norms(network, size)).to(memory_format=torch.channels_last)
        expected, one_by_one = network(inputs), fused(inputs)
        choose_kernels(fused, 2, size)
        packed = fused(inputs)
    layers = [layer for layer in fused.modules() if isinstance(layer, FusedConv2d)]
    assert len(layers) == convolutions
    assert any(layer.relu for layer in layers)
    scale = float(expected.abs().max())
    for found in (one_by_one, packed):
        assert torch.allclose(found, expected, atol=1e-5 * scale, rtol=0)
