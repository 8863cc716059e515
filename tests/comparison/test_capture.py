"""The tensors recorded during a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from comparison.networks import dump_training, find_tensor, values
from viaduct.comparison import Dump
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.comparison.records import StoredDump

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_tensor_that_is_recorded_twice_is_stored_once(side: StoredDump) -> None:
    assert find_tensor(side, "block", "input").path == find_tensor(side, "act", "output").path
    assert find_tensor(side, "network", "output").path == find_tensor(side, "head", "output").path
    assert find_tensor(side, "act", "input").path != find_tensor(side, "act", "output").path


def test_half_precision_is_kept_as_it_was(tmp_path: Path) -> None:
    model = nn.Linear(4, 4).bfloat16()
    inputs = torch.randn(2, 4).bfloat16()
    with Dump(model, tmp_path / "bf16"), torch.no_grad():
        made = model(inputs)
    half = read(tmp_path / "bf16")
    assert find_tensor(half, "network", "output").dtype == "bfloat16"
    bits = values(half, "network", "output")
    assert bits.dtype == np.uint16
    assert np.array_equal(bits, made.view(torch.int16).numpy().view(np.uint16))
    statistics = find_tensor(half, "network", "output").statistics
    assert statistics is not None
    assert statistics["max"] == made.max().item()


@pytest.mark.parametrize(("mode", "roles"), [("input", {"input", "grad_output"}), ("output", {"output", "grad_input"})])
def test_the_mode_selects_tensors_and_weights_are_always_dumped(tmp_path: Path, mode: str, roles: set[str]) -> None:
    side = dump_training(tmp_path, mode=mode)
    recorded = {t.role for t in side.tensors if t.op not in ("labels", "loss")}
    assert recorded == roles | {"parameter", "gradient", "update"}


def test_a_pattern_limits_tensors_but_not_edges(tmp_path: Path) -> None:
    side = dump_training(tmp_path, only="block.*")
    assert {tensor.op for tensor in side.tensors} == {"block.conv", "block.norm"}
    assert side.edges["head"] == ("shared",)
