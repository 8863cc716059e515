"""Parts of a network that our kernels replace, and parts that they leave alone.

What a network of another package does on them is asked in Triton's interpreter, by check_fusing.py."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.foreign_blocks import SmallResNet
from viaduct import models
from viaduct.kernels.fuse import fuse
from viaduct.models.amoebanet import AmoebaNet


def small() -> AmoebaNet:
    return AmoebaNet(10, cells=3, filters=16, stem_filters=8, image=67)


def test_norms_that_communicate_with_other_ranks_are_left_alone() -> None:
    network = nn.SyncBatchNorm.convert_sync_batchnorm(small())
    assert fuse(network, torch.float32) == 0
    assert "forward" not in vars(network)


def test_an_evaluation_runs_as_it_is_written() -> None:
    network = small().eval()
    fused = copy.deepcopy(network)
    assert fuse(fused, torch.bfloat16) == 8
    images = torch.randn(1, 3, 67, 67)
    assert torch.equal(fused(images), network(images))


def test_a_stem_whose_norm_is_in_evaluation_mode_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("the kernels would use and update the statistics of the batch")

    monkeypatch.setattr("viaduct.kernels.fuse.INTERPRETED", True)
    monkeypatch.setattr("viaduct.kernels.fuse.StemFunction.apply", fail)
    stem = models.build("resnet18_v1", classes=4).stem.train()
    stem.norm.eval()
    fused = copy.deepcopy(stem)
    assert fuse(fused, torch.bfloat16) == 1
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(fused(images), stem(images))


def test_an_amoebanet_with_a_norm_in_evaluation_mode_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viaduct.kernels.fuse.INTERPRETED", True)
    monkeypatch.setattr("viaduct.kernels.amoebanet.forward", None)
    network = small()
    network.stem.conv0_bn.eval()
    fused = copy.deepcopy(network)
    fuse(fused, torch.bfloat16)
    images = torch.randn(2, 3, 67, 67)
    torch.manual_seed(0)
    outputs = fused(images)
    torch.manual_seed(0)
    expected = network(images)
    assert all(torch.equal(actual, part) for actual, part in zip(outputs, expected, strict=True))


def test_weights_and_their_names_stay() -> None:
    network = small()
    before = network.state_dict()
    fuse(network, torch.bfloat16)
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(after[name] is tensor or torch.equal(after[name], tensor) for name, tensor in before.items())


CHECKS = Path(__file__).with_name("check_fusing.py")
NAMES = [line[10:].split("(")[0] for line in CHECKS.read_text().splitlines() if line.startswith("def check_")]


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """Run in a process of its own: Triton decides at its import whether it interprets."""
    made = subprocess.run(
        [sys.executable, str(CHECKS)],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, str] = json.loads(made.stdout)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_another_package(failures: dict[str, str], name: str) -> None:
    assert failures[name] == ""


def test_without_a_card_and_without_the_interpreter_blocks_run_as_written() -> None:
    network = SmallResNet()
    plain = copy.deepcopy(network)
    assert fuse(network, torch.float32) == 2
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(network(images), plain(images))
