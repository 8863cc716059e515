from __future__ import annotations

import pytest

from viaduct.cards.limits import LIMITS


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_explained_in_english_and_chinese(name: str) -> None:
    limit = LIMITS[name]
    assert limit.reason.endswith(".")
    assert limit.zh.endswith("。")
    assert any("一" <= letter <= "鿿" for letter in limit.zh)


def test_the_limit_of_nccl_names_both_backends() -> None:
    assert "hccl on an NPU and cncl on an MLU" in LIMITS["nccl-left"].reason
