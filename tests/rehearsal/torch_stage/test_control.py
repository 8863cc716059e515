"""Control functions of the card: device count and current device; variables that list the visible cards."""

from __future__ import annotations

import pytest
import torch

from rehearsal.torch_stage.staged import on
from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import control
from viaduct.rehearsal.torch_stage.cards import MemoryMeter, cards


@on("npu")
def test_a_card_that_does_not_exist_is_refused() -> None:
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


@pytest.fixture
def eight_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CN_VISIBLE_DEVICES", limits.RECORD_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(limits.LIMITS_VARIABLE, "error")
    monkeypatch.setattr(limits, "violations", [])
    monkeypatch.setattr(cards, "memory_meters", [MemoryMeter() for _ in range(8)])


@pytest.mark.usefixtures("eight_cards")
@pytest.mark.parametrize("listed", ["1,0", "0,0", "0, 1", "GPU-1", "0;1"])
def test_a_list_that_the_npu_does_not_take_is_refused(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "device_name", "npu")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)
    with pytest.raises(limits.CardRefuses, match="visible-devices"):
        control._count_visible_cards()


@pytest.mark.usefixtures("eight_cards")
@pytest.mark.parametrize(
    ("name", "variables", "count"),
    [
        ("npu", {}, 8),
        ("npu", {"ASCEND_RT_VISIBLE_DEVICES": "2,5"}, 2),
        ("npu", {"ASCEND_RT_VISIBLE_DEVICES": ""}, 0),
        ("npu", {"ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, range(12)))}, 8),
        ("npu", {"MLU_VISIBLE_DEVICES": "0"}, 8),
        ("mlu", {"MLU_VISIBLE_DEVICES": "1,0"}, 2),
        ("mlu", {"MLU_VISIBLE_DEVICES": "1,0", "CN_VISIBLE_DEVICES": "3"}, 1),
        ("mlu", {"CUDA_VISIBLE_DEVICES": "0"}, 8),
    ],
)
def test_a_process_sees_the_cards_that_its_card_s_own_variable_lists(
    name: str, variables: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "device_name", name)
    for variable, listed in variables.items():
        monkeypatch.setenv(variable, listed)
    assert control._count_visible_cards() == count
