"""Launch sizes: today's defaults, and those that tuning chose."""

from __future__ import annotations

import pytest
import torch

from viaduct.kernels.choices import clear_choices, set_choices
from viaduct.kernels.sizes import (
    Area,
    Loop,
    ReductionSizes,
    Tile,
    choose_default_reduction_sizes,
    find_area,
    find_reduction_sizes,
    find_sizes,
    find_tile,
)


@pytest.fixture(autouse=True)
def _clean_table() -> None:
    clear_choices()


def test_without_choices_launches_have_the_sizes_measured_on_an_h200() -> None:
    def tile(channels: int) -> Tile:
        return find_tile("scale_shift", 100, channels, torch.bfloat16)

    assert [tile(channels) for channels in (64, 128, 129)] == [Tile(16, 64, 4), Tile(16, 128, 4), Tile(8, 256, 4)]
    assert find_area("pooling_forward", (1, 8, 4, 4, 3, 1, 0, 0), torch.bfloat16) == Area(2, 4, 64, 2)
    assert choose_default_reduction_sizes(80_000, 256, 2) == ReductionSizes(32, 64, 8, 4, 64)
    assert choose_default_reduction_sizes(80_000, 256, 1) == ReductionSizes(32, 64, 4, 6, 80)
    assert choose_default_reduction_sizes(800_000, 64, 1) == ReductionSizes(32, 64, 4, 6, 80)
    assert choose_default_reduction_sizes(400_000, 64, 1) == ReductionSizes(64, 64, 8, 2, 0)
    assert choose_default_reduction_sizes(1000, 512, 1) == ReductionSizes(32, 64, 4, 4, 0)
    assert ReductionSizes(64, 64, 8, 2).options == {"num_warps": 8, "maxnreg": None}


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
    assert find_reduction_sizes("batch_norm_statistics", x, 1) == ReductionSizes(8, 16, 2, 1, 64)
    assert find_area("max_pooling", (1, 2), torch.float16) == Area(1, 8, 32, 1)
    assert find_sizes("stem_sums", (7,), torch.float32, Loop(1, 1)) == Loop(64, 8, 4, 2)


def test_areas_and_programs_cover_everything_and_there_is_always_one() -> None:
    assert Area(2, 4, 64, 2).count_tiles(3, 5, 9) == 3 * 3 * 3
    gather = ReductionSizes(64, 64, 8, each=2)
    assert gather.count_programs(torch.empty(1000, 128)) == (2, 4)  # Triton's interpreter has four multiprocessors
    assert gather.count_programs(torch.empty(10, 64)) == (1, 1)
    assert gather.count_programs(torch.empty(10_000, 4096)) == (64, 1)
