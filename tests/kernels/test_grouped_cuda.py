"""How grouped convolutions are cut up for the card, and what becomes of compiled kernels; the kernels: tests/gpu."""

import itertools
from pathlib import Path

import pytest
import torch

from viaduct.kernels import grouped_compiler, grouped_cuda
from viaduct.kernels.grouped_cuda import Cut, Layer, plan, square_tile, window_tile

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
def test_blocks_cover_all_pictures_and_have_room_for_their_share(
    size: tuple[int, int], stride: int, count: int
) -> None:
    for per_group, width, resident in itertools.product((4, 32), (32, 64), (1, 2, 3)):
        work, cut = layer(size, stride, count, per_group), Cut(width, resident)
        for tile in (window_tile(work), window_tile(work, beside=True), square_tile(work)):
            how = plan(tile, work, cut, LIKE)
            assert how.rows * how.strips >= tile.over > how.rows * (how.strips - 1)
            assert how.pictures * how.stacks >= count > how.pictures * (how.stacks - 1)
            assert how.pictures == 1 or how.strips == 1
            assert how.slices * cut.slice == work.channels
            assert how.shared <= H200
            if size[1] <= 56:  # of wider ones a single row may need more than a block's share: fewer blocks at once
                assert how.shared + 1024 <= H200 / resident


def test_a_small_batch_is_not_heaped_onto_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_cuda, "processors", lambda like: 132)
    few, many = (layer((7, 7), 1, count, 32) for count in (32, 256))
    cut = Cut(64, 2)
    assert plan(window_tile(few), few, cut, LIKE).pictures == 1
    how = plan(window_tile(many), many, cut, LIKE)
    assert how.pictures > 4
    assert how.stacks * how.slices >= 132 * 2


def test_pictures_that_the_kernels_cannot_read_are_left_to_others() -> None:
    assert not grouped_cuda.ready(torch.empty(1, 64, 4, 4, dtype=torch.bfloat16))  # on the CPU


def test_what_was_compiled_is_there_for_the_next_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Compiler:
        def nvrtcVersion(self, major: object, minor: object) -> int:
            return 0

    made: list[str] = []

    def compile_source(source: str, defines: grouped_compiler.Defines, architecture: str) -> bytes:
        made.append(architecture)
        return f"{source} {defines} {architecture}".encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grouped_compiler, "compiler", Compiler)
    monkeypatch.setattr(grouped_compiler, "compile_source", compile_source)
    first = grouped_compiler.compiled("text", (("GROUP", 4),), "sm_90")
    assert grouped_compiler.compiled("text", (("GROUP", 4),), "sm_90") == first
    assert made == ["sm_90"]
    others = [
        ("text", (("GROUP", 8),), "sm_90"),
        ("texts", (("GROUP", 4),), "sm_90"),
        ("text", (("GROUP", 4),), "sm_80"),
    ]
    assert len({first, *(grouped_compiler.compiled(*other) for other in others)}) == 4


def test_a_cache_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    grouped_compiler.keep(tmp_path / "file" / "kernel.cubin", b"code")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
