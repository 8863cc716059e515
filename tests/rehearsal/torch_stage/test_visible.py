"""Number of visible cards, from the variables of a process's environment."""

from __future__ import annotations

import pytest

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import visible
from viaduct.rehearsal.torch_stage.cards import MemoryMeter, cards


@pytest.fixture(autouse=True)
def _eight_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CN_VISIBLE_DEVICES", limits.RECORD_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(limits.LIMITS_VARIABLE, "error")
    monkeypatch.setattr(limits, "hits", [])
    monkeypatch.setattr(cards, "meters", [MemoryMeter() for _ in range(8)])


@pytest.mark.parametrize("listed", ["1,0", "0,0", "0, 1", "GPU-1", "0;1"])
def test_a_list_that_the_npu_does_not_take_is_refused(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "name", "npu")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)
    with pytest.raises(limits.CardRefuses, match="visible-devices"):
        visible.count_visible_cards()


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
    monkeypatch.setattr(cards, "name", name)
    for variable, listed in variables.items():
        monkeypatch.setenv(variable, listed)
    assert visible.count_visible_cards() == count
