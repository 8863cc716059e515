from __future__ import annotations

import pytest

from migration.checking import migrate_source
from viaduct.migration.options import Options
from viaduct.migration.targets import ANY, target_cards, target_of

MESSAGES = (("the {card.title} uses {card.backend}", "{card.title} 使用 {card.backend}"), ("any card", "任意加速卡"))


@pytest.mark.parametrize(("to", "backend"), [("npu", "hccl"), ("mlu", "cncl")])
def test_a_cards_target_fills_in_the_cards_names(to: str, backend: str) -> None:
    options = Options(to=to)  # type: ignore[arg-type]
    target = target_of(options)
    assert not target.is_any_card
    assert target.select_message(*MESSAGES) == (f"the {to.upper()} uses {backend}", f"{to.upper()} 使用 {backend}")
    assert [card.name for card in target_cards(options)] == [to]


def test_the_neutral_target_is_no_card() -> None:
    assert target_of(Options(to="any")) is ANY
    assert ANY.select_message(*MESSAGES) == ("any card", "任意加速卡")
    assert [card.name for card in target_cards(Options(to="any"))] == ["npu", "mlu"]
    with pytest.raises(KeyError):
        _ = ANY.card


def test_one_detection_is_rendered_for_each_target() -> None:
    source = 'import torch.distributed as dist\ndist.init_process_group("nccl")\n'
    written = {to: migrate_source(source, "backend", to=to).after.decode() for to in ("npu", "mlu", "any")}
    assert 'init_process_group("hccl")' in written["npu"]
    assert 'init_process_group("cncl")' in written["mlu"]
    assert "init_process_group(accelerator.backend())" in written["any"]
