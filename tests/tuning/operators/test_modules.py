"""Properties that convolutions and linear layers share: precision, oneDNN switches, the timed work."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from viaduct.tuning.operators import linear
from viaduct.tuning.operators.modules import cast_for_compute, describe_operands, make_module_work, set_onednn


def test_onednn_is_as_before_after_an_error() -> None:
    before = torch._C._get_mkldnn_enabled()
    seen = []

    def fail() -> None:
        with set_onednn(not before):
            seen.append(torch._C._get_mkldnn_enabled())
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fail()
    assert seen == [not before]
    assert torch._C._get_mkldnn_enabled() is before


def test_operands_are_cast_only_while_autocast_is_on() -> None:
    x, weight = torch.randn(2, 3), torch.randn(4, 3)
    assert cast_for_compute(x, weight, None) == (x, weight, None)
    with torch.autocast("cpu", torch.bfloat16):
        cast_x, cast_weight, bias = cast_for_compute(x, weight, torch.zeros(4))
    assert bias is not None
    assert cast_x.dtype == cast_weight.dtype == bias.dtype == torch.bfloat16


def test_a_frozen_weight_needs_no_gradient() -> None:
    layer = nn.Linear(3, 4)
    layer.weight.requires_grad_(False)
    assert describe_operands(layer, torch.randn(2, 3))["gradients"] == "none"
    assert describe_operands(layer, torch.randn(2, 3, requires_grad=True))["gradients"] == "x"


def test_two_works_of_one_signature_get_the_same_tensors_and_gradients() -> None:
    layer, x = nn.Linear(3, 4), torch.randn(2, 3, requires_grad=True)
    signature = linear.describe(layer, x)
    assert signature is not None
    forward = linear.make_forward(linear.DEFAULT)
    first, second, exact = (
        dict(make_module_work(nn.Linear(3, 4), forward, signature, "cpu", exact).read_values())
        for exact in (False, False, True)
    )
    assert list(first) == ["output", "gradient of x", "gradient of weight", "gradient of bias"]
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert exact[name].dtype == torch.float64
        assert torch.allclose(tensor.double(), exact[name], atol=1e-5)
