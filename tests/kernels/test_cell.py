"""AmoebaNet's cells on our kernels."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from kernels.check_kernels import check_cells, find_wrong
from kernels.interpreter import Interpret
from viaduct.kernels.cell import can_fuse_cell
from viaduct.models.amoebanet_cells import NORMAL, Cell, Plan, Previous


def test_a_cell_whose_products_would_skip_pixels_is_left_alone() -> None:
    assert not can_fuse_cell(Cell(NORMAL, 8, Previous(8, is_twice_as_large=False), 16, 2))


def test_a_state_with_too_many_readers_is_left_alone() -> None:
    crowded = Plan(
        combinations=((("none", 0), ("max 3x3", 0)), (("avg 3x3", 0), ("none", 0)), (("none", 0), ("none", 1))),
        output=(4,),
    )
    assert not can_fuse_cell(Cell(crowded, 8, Previous(8, is_twice_as_large=False), 16, 1))
    assert can_fuse_cell(Cell(NORMAL, 8, Previous(8, is_twice_as_large=False), 16, 1))


@pytest.mark.process
def test_cells_agree_with_float64(interpret: Interpret) -> None:
    assert find_wrong(interpret(check_cells), 1e-4) == {}  # twenty layers one behind the other
