"""`torch.npu.amp`, here with the CPU in the card's place."""

from __future__ import annotations

import warnings

import pytest
import torch

from viaduct.rehearsal.torch_stage import amp
from viaduct.rehearsal.torch_stage.cards import cards


@pytest.fixture(autouse=True)
def _cpu_as_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "device_name", "cpu")


def test_a_static_loss_scale_stays_until_the_script_sets_it() -> None:
    for dynamic, scale in ((False, 8.0), (True, 16.0)):
        scaler = amp.GradScaler(8.0, growth_interval=1, dynamic=dynamic)
        parameter = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], 0.1)
        scaler.scale(parameter.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0


def test_autocast_needs_no_device_and_can_be_off() -> None:
    x = torch.ones(2, 2)
    with amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
    with amp.autocast(enabled=False):
        assert (x @ x).dtype is torch.float32


def test_a_function_of_autograd_computes_in_the_type_that_it_asks_for() -> None:
    seen: list[torch.dtype] = []

    class Double(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.dtype)
            return x * 2

        @staticmethod
        @amp.custom_bwd
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x = torch.ones(1, dtype=torch.bfloat16, requires_grad=True)
    with warnings.catch_warnings(), amp.autocast(dtype=torch.bfloat16):
        Double.apply(x).sum().backward()
    assert seen == [torch.float32]
    assert x.grad is not None
    assert x.grad.item() == 2
