"""The search space of kernels that reduce over the rows."""

from __future__ import annotations

from dataclasses import asdict

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from viaduct.kernels.sizes import MAX_COLUMNS, ReductionSizes, choose_default_reduction_sizes
from viaduct.kernels.tunable.base import Limits
from viaduct.kernels.tunable.reductions import make_space


@pytest.mark.parametrize(("rows", "channels", "tensors"), [(200, 24, 1), (400_000, 64, 2), (80_000, 256, 1)])
def test_no_launch_needs_more_registers_or_threads_than_there_are(rows: int, channels: int, tensors: int) -> None:
    space = make_space((rows, channels, tensors, "bfloat16"), Limits())
    launches = [ReductionSizes(**point) for point in space.points()]  # type: ignore[arg-type]
    assert choose_default_reduction_sizes(rows, channels, tensors) in launches
    for launch in launches:
        threads = 32 * launch.warps
        assert threads * launch.each <= 2048
        assert launch.registers * threads * launch.each <= 65_536
        assert 2 * launch.height * launch.width // threads < (launch.registers or 255)


def test_a_smaller_card_has_fewer_points() -> None:
    signature = (400_000, 64, 2, "bfloat16")
    small = make_space(signature, Limits(threads=1024))
    assert 0 < small.size < make_space(signature, Limits()).size


def test_every_column_of_programs_has_a_counter() -> None:
    channels = 32 * MAX_COLUMNS
    space = make_space((100, channels, 1, "float32"), Limits())
    assert {point["width"] for point in space.points()} == {32, 64, 128}
    narrow = asdict(choose_default_reduction_sizes(100, channels, 1)) | {"width": 16}
    assert any("columns of programs are more than" in str(rule(narrow)) for rule in space.rules)
