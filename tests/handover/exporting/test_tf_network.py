"""Operators of networks, translated for TensorFlow."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from viaduct.extras import is_installed
from viaduct.handover.exporting.graph import CannotExport, CastNetwork, export_module

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not is_installed("tensorflow"), reason="TensorFlow is not installed"),
]


# Operators of networks that are not ours


class Pools(nn.Module):
    """Pools of every padding."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.ModuleList(
            [
                nn.MaxPool2d(3, 2, 1),
                nn.MaxPool2d(3, 2),
                nn.MaxPool2d(2, 2, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1),
                nn.AvgPool2d(3, 2, 1, count_include_pad=False),
                nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                nn.AvgPool2d(2, 2, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                nn.AvgPool2d((2, 3), (1, 2)),
                nn.AdaptiveAvgPool2d(1),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([pool(x).flatten(1) for pool in self.pools], 1)


class Convolutions(nn.Module):
    """Depthwise, grouped, dilated, strided, without padding, with bias; broadcasting of channels as in SE blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.Conv2d(8, 16, 5, padding=2, groups=8, bias=False),
            nn.ReLU6(),
            nn.Conv2d(16, 8, 3, stride=(2, 1), padding=(1, 0), groups=4),
            nn.Hardswish(),
            nn.Conv2d(8, 8, 3, dilation=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.GELU(),
            nn.Dropout(0.5),
        )
        self.squeeze = nn.Conv2d(8, 8, 1)
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(12), nn.BatchNorm1d(12), nn.Linear(12, 4, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        y = y * torch.sigmoid(self.squeeze(y.mean((2, 3), keepdim=True)))
        logits: Tensor = self.head(nn.functional.pad(y, (-1, 1, 0, 2), value=0.5) - 2 * y.mean() + y[:, :1, -1:, ::1])
        return logits


class Sorts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sort(1).values[:, :4]


def run_translated(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of PyTorch and of TensorFlow."""
    from viaduct.handover.exporting.tf_network import import_tensorflow, translate

    tf = import_tensorflow()
    with torch.no_grad():
        network.eval()(inputs)
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                assert norm.running_mean is not None
                norm.running_mean.uniform_(-0.3, 0.3)
        expected = network(inputs)
    example = torch.zeros(2, *inputs.shape[1:])
    program = export_module(CastNetwork(network, torch.float32).eval(), example, {0: torch.export.Dim("batch", min=1)})
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        images = tf.compat.v1.placeholder(tf.float32, [None, *inputs.shape[2:], 3])
        logits = translate(program.run_decompositions(), images)
        found = session.run(logits, {images: inputs.permute(0, 2, 3, 1).numpy()})
    return expected, torch.from_numpy(found)


@pytest.mark.parametrize("network", [Pools, Convolutions])
@pytest.mark.parametrize("shape", [(12, 12), (13, 11), (9, 16)])
@pytest.mark.filterwarnings("ignore")
def test_operators_of_other_networks_are_translated(network: type[nn.Module], shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    expected, found = run_translated(network(), torch.randn(3, 3, *shape))
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=2e-5)


@pytest.mark.filterwarnings("ignore")
def test_an_operator_without_translation_is_named() -> None:
    with pytest.raises(CannotExport, match=r"the network uses aten\.sort"):
        run_translated(Sorts(), torch.randn(3, 3, 4, 4))
