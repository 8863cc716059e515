"""Values of CANN's options."""

from __future__ import annotations

import pytest

from viaduct.cards.cann_options import DUMP_STEPS, PRECISION_MODES, PRECISION_MODES_V2


@pytest.mark.parametrize("text", ["0", "0|5|10", "3-6", "0|5-10|20"])
def test_steps_to_dump_are_numbers_and_ranges(text: str) -> None:
    assert DUMP_STEPS.fullmatch(text)


@pytest.mark.parametrize("text", ["", "|", "5,10", "3-", "a"])
def test_other_texts_are_no_steps(text: str) -> None:
    assert not DUMP_STEPS.fullmatch(text)


def test_one_mode_belongs_to_both_options() -> None:
    assert set(PRECISION_MODES) & set(PRECISION_MODES_V2) == {"cube_fp16in_fp32out"}
