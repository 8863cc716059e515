"""Tiling of grouped convolutions for the card; the kernels themselves are tested in tests/gpu."""

import itertools

import pytest
import torch

from viaduct.kernels import grouped_compiler, grouped_cuda
from viaduct.kernels.grouped_cuda import BlockShape, Layer, make_square_tile, make_window_tile, plan_launch

H200 = 227 * 1024
LIKE = torch.empty(1)
SIZES = [(56, 56), (28, 28), (14, 14), (7, 7), (9, 11), (1, 224), (112, 224)]


def layer(size: tuple[int, int], stride: int, count: int, per_group: int) -> Layer:
    height, width = size
    out = ((height - 1) // stride + 1, (width - 1) // stride + 1)
    return Layer(count, height, width, *out, 32 * per_group, per_group, stride, 1, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("count", [1, 32, 257])
def test_blocks_cover_all_images_and_have_room_for_their_share(size: tuple[int, int], stride: int, count: int) -> None:
    for per_group, width, resident in itertools.product((4, 32), (32, 64), (1, 2, 3)):
        work, block_shape = layer(size, stride, count, per_group), BlockShape(width, resident)
        for tile in (make_window_tile(work), make_window_tile(work, reads_gradient=True), make_square_tile(work)):
            plan = plan_launch(tile, work, block_shape, LIKE)
            assert plan.rows * plan.strips >= tile.image_rows > plan.rows * (plan.strips - 1)
            assert plan.images * plan.stacks >= count > plan.images * (plan.stacks - 1)
            assert plan.images == 1 or plan.strips == 1
            assert plan.slices * block_shape.slice == work.channels
            assert plan.shared <= H200
            if size[1] <= 56:  # of wider ones a single row may need more than a block's share: fewer blocks at once
                assert plan.shared + 1024 <= H200 / resident


def test_a_small_batch_is_not_heaped_onto_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_cuda, "count_multiprocessors", lambda device: 132)
    few, many = (layer((7, 7), 1, count, 32) for count in (32, 256))
    block_shape = BlockShape(64, 2)
    assert plan_launch(make_window_tile(few), few, block_shape, LIKE).images == 1
    plan = plan_launch(make_window_tile(many), many, block_shape, LIKE)
    assert plan.images > 4
    assert plan.stacks * plan.slices >= 132 * 2


def test_images_that_the_kernels_cannot_read_are_left_to_others() -> None:
    assert not grouped_cuda.can_run(torch.empty(1, 64, 4, 4, dtype=torch.bfloat16))  # on the CPU


class Driver:
    """Loads what was compiled a second time only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[bool] = []
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        monkeypatch.setattr(grouped_cuda, "load_or_compile", self.load_or_compile)
        monkeypatch.setattr(grouped_cuda, "Kernel", self.load)

    def load_or_compile(self, source: str, defines: object, architecture: str, recompile: bool = False) -> bytes:
        self.asked.append(recompile)
        return b"whole" if recompile else b"damaged"

    def load(self, code: bytes, name: str, device: int) -> str:
        if code == b"damaged":
            raise grouped_compiler.CudaError("device kernel image is invalid (200)")
        return name


def test_a_damaged_kernel_in_the_cache_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    grouped_cuda.load_kernel.cache_clear()
    try:
        assert (
            grouped_cuda.load_kernel("grouped_convolution", 4, 1, False, False, (64, 2, 8), 0) == "grouped_convolution"
        )
    finally:
        grouped_cuda.load_kernel.cache_clear()
    assert driver.asked == [False, True]
