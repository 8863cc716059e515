"""Modules recorded by hooks: inputs, outputs and gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comparison.networks import Awkward, Entangled, dump_training, find_tensor, values
from viaduct.comparison import Dump
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.comparison.records import StoredDump

pytestmark = pytest.mark.usefixtures("one_thread")


def test_values_are_those_of_the_operators(side: StoredDump) -> None:
    weight, bias = values(side, "conv", "parameter", 0), values(side, "conv", "parameter", 1)
    images = torch.from_numpy(values(side, "network", "input"))
    made = F.conv2d(images, torch.from_numpy(weight), torch.from_numpy(bias))
    assert np.array_equal(values(side, "conv", "output"), made.numpy())
    assert np.array_equal(values(side, "act", "input"), made.numpy())  # before the module wrote over it
    assert np.array_equal(values(side, "act", "output"), made.relu().numpy())
    assert np.array_equal(values(side, "block", "input"), made.relu().numpy())


def test_an_input_gradient_is_the_share_of_one_module(side: StoredDump) -> None:
    """The block's input goes into its convolution and around it: each way has its own gradient."""
    through = values(side, "block.conv", "grad_input")
    around = values(side, "block", "grad_output")
    assert np.allclose(values(side, "block", "grad_input"), through + around, atol=1e-7)
    assert np.array_equal(values(side, "act", "grad_output"), values(side, "block", "grad_input"))
    passed = values(side, "act", "output") > 0
    assert np.array_equal(values(side, "act", "grad_input"), values(side, "act", "grad_output") * passed)


def test_containers_come_after_their_inner_modules_forward_and_backward(side: StoredDump) -> None:
    for role in ("output", "grad_input"):
        assert find_tensor(side, "block", role).order > find_tensor(side, "block.conv", role).order
        assert find_tensor(side, "block", role).order > find_tensor(side, "block.norm", role).order
    assert find_tensor(side, "head", "grad_input").order < find_tensor(side, "block.conv", "grad_input").order
    assert find_tensor(side, "conv", "parameter").order < find_tensor(side, "conv", "output").order


def test_each_call_of_a_shared_module_is_recorded(side: StoredDump) -> None:
    first, second = (values(side, "shared", "input", call=call) for call in (0, 1))
    assert np.allclose(np.tanh(values(side, "shared", "output", call=0)), second)
    assert not np.array_equal(first, second)


def test_a_wrapped_network_has_the_names_of_the_plain_one(tmp_path: Path) -> None:
    model = Awkward()
    with Dump(nn.DataParallel(model), tmp_path):
        model(torch.randn(2, 3, 8, 8))
    assert "block.conv" in {tensor.op for tensor in read(tmp_path).tensors}


def test_checkpointed_parts_are_recorded_once(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Thrifty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return made

    model = Thrifty()
    with Dump(model, tmp_path) as dump:
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
        dump.step()
    calls = [tensor.call for tensor in read(tmp_path).tensors if tensor.op == "inner" and tensor.role == "output"]
    assert calls == [0]


def test_a_module_that_returns_its_input_has_no_gradient_of_its_own(tmp_path: Path) -> None:
    """Autograd knows one gradient for the tensor: the sum over all that use it, by whatever way they came to it."""
    side = dump_training(tmp_path, model=Entangled(), length=1)
    recorded = {(t.op, t.role, t.index) for t in side.tensors if t.role.startswith("grad_")}
    assert not {op for op, _, _ in recorded if op.endswith("shortcut") or op.startswith("nothing")}
    assert {index for op, role, index in recorded if (op, role) == ("levels", "grad_output")} == {1}
    assert {index for op, role, index in recorded if (op, role) == ("levels", "grad_input")} == {0}
    assert np.array_equal(values(side, "first.shortcut", "output"), values(side, "first", "input"))
    through, around = values(side, "second.conv", "grad_input"), values(side, "second.act", "grad_input")
    assert np.allclose(values(side, "second", "grad_input"), through + around, atol=1e-6)
