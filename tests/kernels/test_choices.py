"""The table of launch parameters: defaults are today's sizes, choices replace them for their signature only."""

from __future__ import annotations

import contextlib

import pytest
import torch

from viaduct.kernels import choices
from viaduct.kernels.choices import clear_choices, find_choice, record_launches, set_choices, use_choices
from viaduct.kernels.sizes import Tile, find_tile

KEY = ("scale_shift", (100, 64, "bfloat16"))
POINT = {"rows": 4, "columns": 32, "warps": 1}


@pytest.fixture(autouse=True)
def _clean_table() -> None:
    clear_choices()


def test_a_choice_is_for_its_kernel_and_signature_only() -> None:
    set_choices({KEY: POINT})
    assert find_tile("scale_shift", 100, 64, torch.bfloat16) == Tile(4, 32, 1)
    assert find_tile("scale_shift", 101, 64, torch.bfloat16) == Tile(16, 64, 4)
    assert find_tile("scale_shift", 100, 64, torch.float32) == Tile(16, 64, 4)
    assert find_tile("sum_terms", 100, 64, torch.bfloat16) == Tile(16, 64, 4)
    clear_choices()
    assert find_tile("scale_shift", 100, 64, torch.bfloat16) == Tile(16, 64, 4)


def test_choices_of_a_block_end_with_it_even_after_an_error() -> None:
    set_choices({KEY: POINT})
    with use_choices({KEY: POINT | {"warps": 8}}):
        assert find_choice(*KEY) == POINT | {"warps": 8}
    assert find_choice(*KEY) == POINT
    with contextlib.suppress(RuntimeError), use_choices({KEY: POINT | {"warps": 8}}):
        raise RuntimeError
    assert find_choice(*KEY) == POINT


def test_launches_are_recorded_with_their_signatures() -> None:
    with record_launches() as launches:
        for _ in range(3):
            find_tile("scale_shift", 100, 64, torch.bfloat16)
        find_tile("sum_terms", 5, 8, torch.float32)
    find_tile("sum_terms", 6, 8, torch.float32)  # after the block
    assert launches == {KEY: 3, ("sum_terms", (5, 8, "float32")): 1}
    assert choices._launches is None
