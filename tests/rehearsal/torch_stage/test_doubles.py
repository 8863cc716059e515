"""float64 and complex128 on a card."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import expect_refusal, on
from viaduct.rehearsal import limits


@on("npu")
def test_a_script_within_the_limits_has_no_reports() -> None:
    x = torch.ones(2, device="npu", requires_grad=True)
    scaler = torch.amp.GradScaler("npu")
    optimizer = torch.optim.SGD([x], 0.1)
    scaler.scale(x.sum()).backward()  # inverts its scale in float64: PyTorch's own business
    scaler.step(optimizer)
    assert "device='npu:0'" in repr(x)  # so does printing
    assert torch.ones(2, dtype=torch.float64).sum() == 2  # the host has float64
    assert x.item if x.numel() == 1 else x.tolist()
    assert limits.violations == []


@on("npu")
def test_every_way_to_make_float64_on_the_card_is_refused() -> None:
    x = torch.ones(2, device="npu")
    with expect_refusal("float64"):
        torch.ones(2, dtype=torch.float64, device="npu")
    with expect_refusal("float64"):
        x.double()
    with expect_refusal("float64"):
        torch.ones(2, dtype=torch.float64).npu()
    with expect_refusal("float64"):
        torch.nn.Linear(2, 2).double().npu()
    for wide in (lambda: torch.zeros(2, dtype=torch.complex128, device="npu"), lambda: x.to(torch.complex128)):
        with expect_refusal("float64"):
            wide()
    line = limits.violations[0].place
    assert line is not None
    assert "dtype=torch.float64" in line.text
