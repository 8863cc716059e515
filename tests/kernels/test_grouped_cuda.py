"""How grouped convolutions are cut up for the card, and what becomes of compiled kernels; the kernels: tests/gpu."""

import itertools
from pathlib import Path

import pytest
import torch

from viaduct.kernels import grouped, grouped_compiler, grouped_cuda
from viaduct.kernels.choices import use_choices
from viaduct.kernels.grouped_cuda import BlockShape, Layer, plan_launch, square_tile, window_tile

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
        for tile in (window_tile(work), window_tile(work, reads_gradient=True), square_tile(work)):
            plan = plan_launch(tile, work, block_shape, LIKE)
            assert plan.rows * plan.strips >= tile.image_rows > plan.rows * (plan.strips - 1)
            assert plan.images * plan.stacks >= count > plan.images * (plan.stacks - 1)
            assert plan.images == 1 or plan.strips == 1
            assert plan.slices * block_shape.slice == work.channels
            assert plan.shared <= H200
            if size[1] <= 56:  # of wider ones a single row may need more than a block's share: fewer blocks at once
                assert plan.shared + 1024 <= H200 / resident


def test_a_small_batch_is_not_heaped_onto_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_cuda, "processors", lambda like: 132)
    few, many = (layer((7, 7), 1, count, 32) for count in (32, 256))
    block_shape = BlockShape(64, 2)
    assert plan_launch(window_tile(few), few, block_shape, LIKE).images == 1
    plan = plan_launch(window_tile(many), many, block_shape, LIKE)
    assert plan.images > 4
    assert plan.stacks * plan.slices >= 132 * 2


def test_images_that_the_kernels_cannot_read_are_left_to_others() -> None:
    assert not grouped_cuda.can_run(torch.empty(1, 64, 4, 4, dtype=torch.bfloat16))  # on the CPU


def test_what_was_compiled_is_there_for_the_next_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Compiler:
        def nvrtcVersion(self, major: object, minor: object) -> int:
            return 0

    made: list[str] = []

    def compile_source(source: str, defines: grouped_compiler.Defines, architecture: str) -> bytes:
        made.append(architecture)
        return f"{source} {defines} {architecture}".encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grouped_compiler, "load_nvrtc", Compiler)
    monkeypatch.setattr(grouped_compiler, "compile_source", compile_source)
    first = grouped_compiler.load_or_compile("text", (("GROUP", 4),), "sm_90")
    assert grouped_compiler.load_or_compile("text", (("GROUP", 4),), "sm_90") == first
    assert made == ["sm_90"]
    others = [
        ("text", (("GROUP", 8),), "sm_90"),
        ("texts", (("GROUP", 4),), "sm_90"),
        ("text", (("GROUP", 4),), "sm_80"),
    ]
    assert len({first, *(grouped_compiler.load_or_compile(*other) for other in others)}) == 4


def test_a_cache_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    grouped_compiler.store_code(tmp_path / "file" / "kernel.cubin", b"code")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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


def test_a_kernel_that_cannot_be_had_after_all_leaves_the_layer_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(*tensors: object) -> torch.Tensor:
        asked.append("once")
        raise grouped_compiler.CudaError("launching a kernel of our own: invalid argument (1)")

    given_up: set[torch.device] = set()
    monkeypatch.setattr(grouped_cuda, "FAILED_DEVICES", given_up)
    monkeypatch.setattr(grouped_cuda, "can_run", lambda x: x.device not in given_up)
    for name in ("convolution", "input_gradient", "weight_gradient"):
        monkeypatch.setattr(grouped_cuda, name, refuse)
    conv = torch.nn.Conv2d(64, 64, 3, padding=1, groups=16, bias=False)
    x = torch.randn(2, 64, 6, 6).contiguous(memory_format=torch.channels_last)
    with pytest.warns(UserWarning, match="left to cuDNN.*invalid argument"):
        made = grouped.forward(x, conv.weight, conv)
    torch.testing.assert_close(made, conv(x))
    at_input, at_weight = grouped.backward(torch.randn(72, 64), x, conv.weight, conv)
    assert at_input.shape == x.shape
    assert at_weight.shape == conv.weight.shape
    assert asked == ["once"]  # not for every layer of every step again


@pytest.mark.parametrize("chosen", ["own", "library", None])
@pytest.mark.parametrize(("per_group", "default"), [(4, "own"), (32, "library")])
def test_tuning_may_choose_between_our_kernels_and_the_library(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, per_group: int, default: str
) -> None:
    monkeypatch.setattr(grouped_cuda, "can_run", lambda x: True)
    conv = torch.nn.Conv2d(32 * per_group, 32 * per_group, 3, padding=1, groups=32, bias=False)
    x = torch.empty(2, 32 * per_group, 6, 6)
    key = ("grouped_input_implementation", grouped.implementation_signature(x, conv))
    with use_choices({} if chosen is None else {key: {"implementation": chosen}}):
        assert grouped.uses_own_kernel("input", conv, x) == ((chosen or default) == "own")
        assert grouped.uses_own_kernel("forward", conv, x) == (default == "own")  # another direction
