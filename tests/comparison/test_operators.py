"""Operators recorded by a dispatch mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from comparison.networks import dump_training, values
from viaduct.comparison import Dump
from viaduct.comparison.readers.viaduct_dump import read

pytestmark = pytest.mark.usefixtures("one_thread")


def test_operators_are_named_by_module_kind_and_call(tmp_path: Path) -> None:
    side = dump_training(tmp_path, level="op")
    ops = {tensor.op for tensor in side.tensors}
    assert {"conv.convolution.0", "block.norm.batch_norm.0", "block.relu.0", "block.add.0"} <= ops
    assert {"block.conv.convolution_backward.0", "shared.addmm.1"} <= ops
    assert side.edges["block.add.0"] == ("block.relu.0", "act.relu.0")
    assert side.edges["block.norm.batch_norm.0"] == ("block.conv.convolution.0",)
    assert np.array_equal(values(side, "conv.convolution.0", "output"), values(side, "act.relu.0", "input"))
    weight = values(side, "block.conv.convolution_backward.0", "output", 1)
    assert weight.shape == (4, 4, 3, 3)


def test_an_operator_that_works_in_place_has_an_output_of_its_own(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with Dump(network, tmp_path / "dump", steps="0", level="op") as dump:
        network(torch.randn(5, 3)).sum().backward()
        dump.step()
    side = read(tmp_path / "dump")
    before, after = (values(side, "1.relu.0", role) for role in ("input", "output"))
    assert (before < 0).any()
    assert np.array_equal(after, np.maximum(before, 0))
