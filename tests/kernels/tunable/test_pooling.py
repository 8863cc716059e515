"""The search space of kernels that read a pixel's neighbours."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from viaduct.kernels.sizes import DEFAULT_AREA, Area
from viaduct.kernels.tunable.base import Limits
from viaduct.kernels.tunable.pooling import limit_area, make_space


def test_areas_that_leave_threads_idle_or_overflow_registers_are_refused() -> None:
    assert "a thread has 0.5" in str(limit_area({"height": 1, "width": 1, "columns": 16, "warps": 1}))
    assert "64 elements a thread" in str(limit_area({"height": 8, "width": 16, "columns": 128, "warps": 8}))
    assert limit_area({"height": 1, "width": 2, "columns": 16, "warps": 1}) is None


def test_the_default_is_a_point_and_every_point_fits() -> None:
    space = make_space((8, 64, 28, 28, 3, 2, 0, 0, "bfloat16"), Limits())
    areas = [Area(**point) for point in space.points()]  # type: ignore[arg-type]
    assert DEFAULT_AREA in areas
    assert all(1 <= area.height * area.width * area.columns / (32 * area.warps) <= 32 for area in areas)
