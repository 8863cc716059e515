"""Control functions of the card: device count and current device."""

from __future__ import annotations

import pytest
import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_a_card_that_is_not_there_is_refused() -> None:
    assert torch.npu.device_count() == 8
    with pytest.raises(RuntimeError, match="Invalid device ID: 8"):
        torch.npu.set_device(8)
    with pytest.raises(RuntimeError, match="Invalid device ID: 9"):
        torch.ones(1, device="npu:9")


@on("npu")
def test_tensors_go_to_the_current_card_unless_another_is_named() -> None:
    torch.npu.set_device(2)
    placed = [
        torch.ones(1).npu(),
        torch.ones(1).to("npu"),
        torch.ones(1).to(torch.device("npu")),
        torch.ones(1, device="npu"),
        torch.tensor([1.0], device="npu"),
        torch.as_tensor([1.0], device="npu"),
        torch.nn.Linear(1, 1).to("npu").weight,
        torch.nn.Linear(1, 1).npu().weight,
        torch.nn.Linear(1, 1, device="npu").weight,
        torch.npu.FloatTensor([1.0]),
    ]
    assert {str(tensor.device) for tensor in placed} == {"npu:2"}
    assert torch.ones(1).npu(1).device == torch.device("npu", 1)
    with torch.npu.device(3):
        assert torch.ones(1, device="npu").get_device() == 3
    assert torch.npu.current_device() == torch.accelerator.current_device_index() == 2
    assert placed[0].is_npu
    assert not torch.ones(1).is_npu
    assert placed[0].type() == "torch.npu.FloatTensor"
    assert type(placed[0]) is torch.Tensor
