"""Compiling block by block: which blocks, how often, and that nothing else changes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.tiny import RECIPE, normed, trained, training, weights
from viaduct import models
from viaduct.errors import BadValue
from viaduct.recipes import Thor
from viaduct.training.callbacks import Callback
from viaduct.training.compiling import CACHE, keep_compiled, regions
from viaduct.training.dumping import DumpOptions
from viaduct.training.rundir import RunDir


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.conv(x)))


class Tower(nn.Module):
    """Three blocks of one kind and one of another, around layers of torch's."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 4, 3, stride=2), nn.Sequential(Block(4), Block(4), Block(4))
        self.widen, self.last, self.head = nn.Conv2d(4, 6, 1), Block(6), nn.Linear(6, classes)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.last(self.widen(self.blocks(self.stem(images))))
        return self.head(features.mean((2, 3)))  # type: ignore[no-any-return]


# torch's own, which it hides by a way that does not reach here.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
TOWER = replace(RECIPE, model=Tower, epochs=1, mode="graph")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are found as ever and run as they are: the compiler behind them takes a minute on a busy machine."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda work, **options: real(work, backend="eager", dynamic=False))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def compiled(network: nn.Module) -> list[str]:
    return [name for name, part in network.named_modules() if part._compiled_call_impl is not None]


def test_a_network_of_torchs_own_layers_has_no_blocks() -> None:
    assert regions(normed(4)) == []


@pytest.mark.parametrize(("name", "blocks"), [("resnet50_v1", 17), ("resnet18_v2", 9), ("resnext50", 17)])
def test_the_blocks_of_a_residual_network_are_its_stem_and_its_residual_blocks(name: str, blocks: int) -> None:
    found = regions(models.build(name, classes=10))
    assert len(found) == blocks
    assert len({type(part).__name__ for part in found}) == 2


def test_the_blocks_of_amoebanet_hold_nearly_all_of_it() -> None:
    network = models.build("amoebanet_d", classes=10, cells=3, filters=16, image=67)
    found = regions(network)
    assert sum(type(part).__name__ == "Cell" for part in found) == 3 + 4
    inside = sum(parameter.numel() for part in found for parameter in part.parameters())
    alone = sum(parameter.numel() for parameter in network.parameters()) - inside
    assert alone < 0.1 * inside


def test_no_part_that_has_a_forward_pass_of_its_own_is_compiled() -> None:
    network = Tower(4)
    network.blocks[1].conv.forward = lambda x: x  # type: ignore[method-assign]
    assert regions(network) == [network.blocks[0], network.blocks[2], network.last]


def test_equal_blocks_share_their_code(run: RunDir, traced: None) -> None:
    done = training(TOWER, run)
    done.computation.train(True)
    done.take(next(done.coming_batches()))
    assert compiled(done.model) == ["blocks.0", "blocks.1", "blocks.2", "last"]
    # Three of four are equal, but the first one's input needs no gradient of its own weights; torch may part it off.
    assert 2 <= graphs() <= 3


@pytest.mark.parametrize("how", ["auto", "regional", "whole"])
def test_a_compiled_run_takes_the_same_steps(tmp_path: Path, traced: None, how: Any) -> None:
    plain = trained(replace(TOWER, mode="eager"), RunDir(tmp_path / "plain"))
    done = trained(replace(TOWER, compile=how), RunDir(tmp_path / how))
    assert graphs() > 0
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(done)[name], tensor)


def test_off_compiles_nothing(run: RunDir, traced: None) -> None:
    trained(replace(TOWER, compile="off"), run)
    assert graphs() == 0


def test_a_network_without_blocks_is_compiled_whole(run: RunDir, traced: None) -> None:
    trained(replace(TOWER, model=normed), run)
    assert graphs() == 2  # training and evaluation


def test_thors_refreshes_see_blocks_that_are_not_compiled(run: RunDir, traced: None) -> None:
    recipe = replace(TOWER, optimizer=Thor(0.01, frequency=1))
    plain = trained(replace(recipe, mode="eager"), run)
    done = trained(recipe, run)
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(done)[name], tensor)


class Close(Callback):
    closely = True


def test_who_looks_closely_has_a_network_compiled_whole(run: RunDir, traced: None) -> None:
    done = training(TOWER, run, Close())
    assert not done.computation.compilation.parts
    assert compiled(done.model) == []


def test_a_dump_of_blocks_is_refused_with_the_way_out() -> None:
    with pytest.raises(BadValue, match="block by block cannot be dumped") as refused:
        DumpOptions("0").refuse(replace(TOWER, compile="regional"), 1)
    assert "--compile whole" in str(refused.value)


def test_what_was_compiled_is_told_once(run: RunDir, traced: None, capsys: pytest.CaptureFixture[str]) -> None:
    trained(TOWER, run)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Compiled")]
    assert len(lines) == 1
    assert lines[0].startswith("Compiled 4 blocks of the network, ")
    assert lines[0].endswith(f"kept for the next run in {os.environ[CACHE]}")


def test_the_cache_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE, "mine")
    keep_compiled()
    assert os.environ[CACHE] == "mine"
    monkeypatch.delenv(CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled()
    assert os.environ[CACHE] == str(tmp_path / "viaduct" / "compiled")
    assert (tmp_path / "viaduct" / "compiled").is_dir()


def test_a_cache_that_cannot_be_written_is_left_to_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_compiled()
    assert CACHE not in os.environ


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules, imported with its compiler
def test_blocks_compiled_for_real_take_the_same_steps_and_are_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    torch._dynamo.reset()
    plain = trained(replace(TOWER, mode="eager"), RunDir(tmp_path / "plain"))
    done = trained(TOWER, RunDir(tmp_path / "graph"))
    assert any((tmp_path / "cache").iterdir())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    trained(TOWER, RunDir(tmp_path / "again"))
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == graphs() > 0
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(done)[name], tensor, rtol=1e-4, atol=1e-5)
