"""The kernels on a real card, in bf16, against float64; `make test-gpu`."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
]
ALLOWED = 2e-2  # bf16 keeps eight bits; gradients go through a dozen roundings


def good(errors: dict[str, float]) -> None:
    assert {name: error for name, error in errors.items() if not error < ALLOWED} == {}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("same", [False, True])
def test_stem(same: bool, seed: int) -> None:
    from kernels.checks import check_stem

    torch.manual_seed(seed)
    good(check_stem(same, size=(64, 96, 224)[seed], count=8, device="cuda", dtype=torch.bfloat16))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("grouped", [False, True])
def test_blocks(grouped: bool, seed: int) -> None:
    from kernels.checks import check_blocks

    from viaduct.models.resnet import Bottleneck
    from viaduct.models.resnext import GroupedBottleneck

    torch.manual_seed(seed)
    kind, filters = (GroupedBottleneck, (128, 256, 512)[seed]) if grouped else (Bottleneck, (64, 128, 96)[seed])
    made = check_blocks(kind, bool(seed % 2), filters, (28, 15, 14)[seed], 8, "cuda", torch.bfloat16)
    good(made)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "size"), [(128, 56), (256, 28), (512, 15), (1024, 7)])
def test_grouped(channels: int, size: int, stride: int) -> None:
    from kernels.checks import check_grouped

    good(check_grouped(channels, 32, stride, size, stride == 2, 8, "cuda", torch.bfloat16))


@pytest.mark.parametrize(("rows", "channels"), [(100_000, 64), (5_000, 2048), (33, 16), (200_001, 264)])
def test_norm(rows: int, channels: int) -> None:
    from kernels.checks import check_norm

    good(check_norm(rows, channels, "cuda", torch.bfloat16))
