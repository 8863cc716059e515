"""The table of launch parameters: defaults are today's sizes, choices replace them for their signature only."""

from __future__ import annotations

import contextlib

import pytest
import torch

from viaduct.kernels import choices
from viaduct.kernels.choices import clear_choices, find_choice, list_choices, record_launches, set_choices, use_choices
from viaduct.kernels.sizes import Area, Gather, Loop, Tile, area_for, default_gather, gather_for, loop_for, tile_for

KEY = ("scale_shift", (100, 64, "bfloat16"))
POINT = {"rows": 4, "columns": 32, "warps": 1}


@pytest.fixture(autouse=True)
def _clean_table() -> None:
    clear_choices()


def test_without_choices_launches_have_the_sizes_measured_on_an_h200() -> None:
    def tile(channels: int) -> Tile:
        return tile_for("scale_shift", 100, channels, torch.bfloat16)

    assert [tile(channels) for channels in (64, 128, 129)] == [Tile(16, 64, 4), Tile(16, 128, 4), Tile(8, 256, 4)]
    assert area_for("pooling_forward", (1, 8, 4, 4, 3, 1, 0, 0), torch.bfloat16) == Area(2, 4, 64, 2)
    assert default_gather(80_000, 256, 2) == Gather(32, 64, 8, 4, 64)
    assert default_gather(80_000, 256, 1) == Gather(32, 64, 4, 6, 80)
    assert default_gather(800_000, 64, 1) == Gather(32, 64, 4, 6, 80)
    assert default_gather(400_000, 64, 1) == Gather(64, 64, 8, 2, 0)
    assert default_gather(1000, 512, 1) == Gather(32, 64, 4, 4, 0)
    assert Gather(64, 64, 8, 2).options == {"num_warps": 8, "maxnreg": None}


def test_a_choice_is_for_its_kernel_and_signature_only() -> None:
    set_choices({KEY: POINT})
    assert tile_for("scale_shift", 100, 64, torch.bfloat16) == Tile(4, 32, 1)
    assert tile_for("scale_shift", 101, 64, torch.bfloat16) == Tile(16, 64, 4)
    assert tile_for("scale_shift", 100, 64, torch.float32) == Tile(16, 64, 4)
    assert tile_for("sum_terms", 100, 64, torch.bfloat16) == Tile(16, 64, 4)
    assert list_choices() == {KEY: POINT}
    clear_choices()
    assert tile_for("scale_shift", 100, 64, torch.bfloat16) == Tile(16, 64, 4)


def test_every_kind_of_launch_reads_its_choice() -> None:
    x = torch.empty((100, 64), dtype=torch.bfloat16)
    gather = {"height": 8, "width": 16, "warps": 2, "each": 1, "registers": 64}
    area = {"height": 1, "width": 8, "columns": 32, "warps": 1}
    loop = {"block": 64, "warps": 8, "waves": 4, "stages": 2}
    set_choices(
        {
            ("batch_norm_statistics", (100, 64, 1, "bfloat16")): gather,
            ("max_pooling", (1, 2, "float16")): area,
            ("stem_sums", (7, "float32")): loop,
        }
    )
    assert gather_for("batch_norm_statistics", x, 1) == Gather(8, 16, 2, 1, 64)
    assert area_for("max_pooling", (1, 2), torch.float16) == Area(1, 8, 32, 1)
    assert loop_for("stem_sums", (7,), torch.float32, Loop(1, 1)) == Loop(64, 8, 4, 2)


def test_choices_of_a_block_end_with_it_even_after_an_error() -> None:
    set_choices({KEY: POINT})
    with use_choices({KEY: POINT | {"warps": 8}}):
        assert find_choice(*KEY) == POINT | {"warps": 8}
    assert list_choices() == {KEY: POINT}
    with contextlib.suppress(RuntimeError), use_choices({KEY: POINT | {"warps": 8}}):
        raise RuntimeError
    assert list_choices() == {KEY: POINT}


def test_launches_are_recorded_with_their_signatures() -> None:
    with record_launches() as launches:
        for _ in range(3):
            tile_for("scale_shift", 100, 64, torch.bfloat16)
        tile_for("sum_terms", 5, 8, torch.float32)
    tile_for("sum_terms", 6, 8, torch.float32)  # after the block
    assert launches == {KEY: 3, ("sum_terms", (5, 8, "float32")): 1}
    assert choices._launches is None
