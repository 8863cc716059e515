"""The search space of elementwise kernels."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from viaduct.kernels.sizes import Tile, choose_default_tile
from viaduct.kernels.tunable.base import Limits
from viaduct.kernels.tunable.rows import make_space


@pytest.mark.parametrize("channels", [8, 64, 200, 2048])
def test_no_tile_wastes_columns_or_overflows_registers(channels: int) -> None:
    space = make_space((1000, channels, "float32"), Limits())
    tiles = [Tile(**point) for point in space.points()]  # type: ignore[arg-type]
    assert choose_default_tile(channels) in tiles
    for tile in tiles:
        assert 1 <= tile.rows * tile.columns / (32 * tile.warps) <= 64
        assert tile.columns <= 64 or tile.columns < 2 * channels


def test_many_channels_may_have_wide_tiles_and_few_may_not() -> None:
    few, many = (make_space((1000, channels, "float32"), Limits()) for channels in (64, 512))
    assert {point["columns"] for point in few.points()} == {32, 64}
    assert {point["columns"] for point in many.points()} == {32, 64, 128, 256, 512}
