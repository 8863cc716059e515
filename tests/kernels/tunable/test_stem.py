"""Search spaces of the stem's kernels, and cells of pooling windows that no image has."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from viaduct.kernels import stem
from viaduct.kernels.tunable.base import Limits
from viaduct.kernels.tunable.stem import TUNABLES, drop_cells_outside
from viaduct.search_space import Space

SIGNATURE = (64, 112, 112, "bfloat16")


def make_space(kernel: str, limits: Limits | None = None, signature: tuple[int | str, ...] = SIGNATURE) -> Space:
    (tunable,) = (tunable for tunable in TUNABLES if tunable.kernel == kernel)
    return tunable.make_space(signature, limits or Limits())


def values_of(space: Space, name: str) -> set[object]:
    return {point[name] for point in space.points()}


def test_a_parameter_that_a_kernel_does_not_use_is_not_searched() -> None:
    assert values_of(make_space("stem_pool"), "stages") == {3}
    assert values_of(make_space("stem_pool"), "waves") == {1}
    assert values_of(make_space("stem_inference"), "waves") == {1}
    assert len(values_of(make_space("stem_convolution"), "waves")) == 8


@pytest.mark.parametrize("kernel", [tunable.kernel for tunable in TUNABLES])
def test_no_block_leaves_threads_without_a_number_or_needs_too_many_registers(kernel: str) -> None:
    for point in make_space(kernel).points():
        each = int(point["block"]) * 64 / (32 * int(point["warps"]))
        assert 1 <= each <= 255 - 40


def test_pipelines_that_do_not_fit_into_shared_memory_are_refused() -> None:
    small = Limits(shared_memory=160 * 1024)
    for dtype, size in (("bfloat16", 2), ("float32", 4)):
        space = make_space("stem_convolution", small, (*SIGNATURE[:-1], dtype))
        largest = max(int(point["stages"]) * (int(point["block"]) + 64) * 64 * size for point in space.points())
        assert 100 * 1024 < largest <= 160 * 1024
        assert space.size < make_space("stem_convolution", None, (*SIGNATURE[:-1], dtype)).size


def test_windows_at_the_edge_choose_no_cell_outside_of_the_image() -> None:
    size = stem.Size(count=1, height=4, width=4, filters=64, pool_padding=0)
    cells = torch.arange(9).repeat(4, 8)[:, :64]
    dropped = drop_cells_outside(cells, size)
    assert torch.equal(dropped[0], cells[0])  # the window at the top left is whole
    assert set(dropped[3].tolist()) == {0, 1, 3, 4, 9}  # at the bottom right only two rows and columns are inside
