"""The MLU, beyond what it shares with CUDA."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import on
from viaduct.rehearsal import limits


@on("mlu")
def test_an_mlu_takes_a_number_for_a_card() -> None:
    assert torch.ones(1).to(3).device == torch.device("mlu", 3)
    assert torch.nn.Linear(1, 1).to(1).weight.device == torch.device("mlu", 1)
    assert torch.mlu.get_device_capability()[0] > 0
    assert limits.violations == []
