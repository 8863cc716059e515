"""Compiling block by block: which blocks, how often, and that nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.tiny_runs import RECIPE, build_normed_network, build_training, copy_weights, train_recipe
from viaduct import models
from viaduct.comparison.dump_options import DumpOptions
from viaduct.errors import BadValue
from viaduct.recipes import Init, Precision, Recipe, Sgd, Thor
from viaduct.torch_compat import get_default_compile_cache
from viaduct.training import compiling
from viaduct.training.callbacks import Callback
from viaduct.training.compiling import (
    CACHE_VARIABLE,
    Compilation,
    find_blocks,
    find_named_parts,
    set_compile_cache,
    uses_own_kernels,
)
from viaduct.training.dumping import check_dump
from viaduct.training.loop import Training
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


def list_compiled(network: nn.Module) -> list[str]:
    return [name for name, part in network.named_modules() if part._compiled_call_impl is not None]


def test_a_network_of_torchs_own_layers_has_no_blocks() -> None:
    assert find_blocks(build_normed_network(4)) == []


@pytest.mark.parametrize(("name", "blocks"), [("resnet50_v1", 17), ("resnet18_v2", 9), ("resnext50", 17)])
def test_the_blocks_of_a_residual_network_are_its_stem_and_its_residual_blocks(name: str, blocks: int) -> None:
    found = find_blocks(models.build(name, classes=10))
    assert len(found) == blocks
    assert len({type(part).__name__ for part in found}) == 2


def test_the_blocks_of_amoebanet_hold_nearly_all_of_it() -> None:
    network = models.build("amoebanet_d", classes=10, cells=3, filters=16, image=67)
    found = find_blocks(network)
    assert sum(type(part).__name__ == "Cell" for part in found) == 3 + 4
    inside = sum(parameter.numel() for part in found for parameter in part.parameters())
    alone = sum(parameter.numel() for parameter in network.parameters()) - inside
    assert alone < 0.1 * inside


def pass_of_ours(part: nn.Module, x: Tensor) -> Tensor:
    """Stands for a pass on kernels of our own, which are known by where they come from."""
    return type(part).forward(part, x)  # type: ignore[no-any-return]


pass_of_ours.__module__ = "viaduct.kernels.stand_in"


def give_kernels(*parts: nn.Module) -> int:
    for part in parts:
        part.forward = partial(pass_of_ours, part)
    return len(parts)


def on_our_kernels(which: Callable[[Any], list[nn.Module]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run has kernels of our own in these parts of its network."""
    monkeypatch.setattr(Training, "fuse_kernels", lambda self, network: give_kernels(*which(network)))


def test_no_part_that_runs_on_kernels_of_our_own_is_compiled() -> None:
    network = Tower(4)
    give_kernels(network.get_submodule("blocks.1.conv"))
    assert find_blocks(network) == [network.blocks[0], network.blocks[2], network.last]


def test_a_part_inside_one_that_runs_on_kernels_of_our_own_is_not_compiled() -> None:
    network = Tower(4)
    give_kernels(*network.blocks)
    with pytest.raises(BadValue, match="run on viaduct's own kernels, which are not compiled"):
        find_named_parts(network, "blocks.*.conv")


def test_a_forward_pass_of_somebody_elses_does_not_keep_a_part_from_being_compiled() -> None:
    network = Tower(4)
    guarded: Any = network.get_submodule("blocks.1.conv")
    guarded.forward = partial(nn.Conv2d.forward, guarded)
    assert len(find_blocks(network)) == 4


def test_where_kernels_of_our_own_leave_no_blocks_auto_compiles_nothing(
    run: RunDir, traced: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_our_kernels(lambda network: [*network.blocks], monkeypatch)  # what is left stands alone
    done = train_recipe(TOWER, run)
    assert (list_compiled(done.model), graphs()) == ([], 0)
    assert "Compiled" not in capsys.readouterr().err


def test_blocks_that_kernels_of_our_own_leave_are_compiled(
    run: RunDir, traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_our_kernels(lambda network: [network.blocks[0]], monkeypatch)
    assert list_compiled(train_recipe(TOWER, run).model) == ["blocks.1", "blocks.2", "last"]


def test_the_blocks_of_a_network_that_runs_on_our_kernels_as_a_whole_are_not_compiled(
    run: RunDir, traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_our_kernels(lambda network: [network], monkeypatch)
    assert list_compiled(train_recipe(TOWER, run).model) == []


def test_regional_compiles_what_kernels_of_our_own_leave_even_if_it_stands_alone(
    run: RunDir, traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_our_kernels(lambda network: [*network.blocks], monkeypatch)
    assert list_compiled(train_recipe(replace(TOWER, compile="regional"), run).model) == ["last"]


BF16 = replace(TOWER, precision=Precision("bf16"))


@pytest.mark.parametrize(
    ("model", "how"),
    [(build_normed_network, "auto"), (Tower, "whole"), (Tower, "auto"), (build_normed_network, "whole")],
)
def test_in_bf16_a_guarded_network_is_compiled_all_the_same(run: RunDir, traced: None, model: Any, how: Any) -> None:
    train_recipe(replace(BF16, model=model, compile=how), run)
    assert graphs() > 0


def single(classes: int) -> nn.Module:
    """Its second convolution sees one pixel."""
    first, second = nn.Conv2d(3, 64, 16, bias=False), nn.Conv2d(64, 64, 3, 2, 1, bias=False)
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(64, classes))


def test_a_compiled_network_in_bf16_keeps_the_gradient_of_a_single_pixel_whole(run: RunDir, traced: None) -> None:
    recipe = replace(BF16, model=single, compile="whole", optimizer=Sgd(0.01))
    plain = train_recipe(replace(recipe, mode="eager"), run)
    done = train_recipe(recipe, run)
    assert graphs() == 2
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(done)[name], tensor, rtol=1e-2, atol=1e-2)


@pytest.mark.filterwarnings("ignore:.*inline_inbuilt_nn_modules is deprecated:FutureWarning")
def test_equal_blocks_share_their_code(run: RunDir, traced: None) -> None:
    done = build_training(TOWER, run)
    done.computation.train(True)
    done.run_step(next(done.iterate_batches()))
    assert list_compiled(done.model) == ["blocks.0", "blocks.1", "blocks.2", "last"]
    # Three of four are equal, but the first one's input needs no gradient of its own weights; torch may part it off.
    # torch 2.4 compiles each module by itself.
    shares = getattr(torch._dynamo.config, "inline_inbuilt_nn_modules", True)
    assert 2 <= graphs() <= (3 if shares else 4)


@pytest.mark.parametrize("how", ["auto", "regional", "whole"])
def test_a_compiled_run_takes_the_same_steps(tmp_path: Path, traced: None, how: Any) -> None:
    plain = train_recipe(replace(TOWER, mode="eager"), RunDir(tmp_path / "plain"))
    done = train_recipe(replace(TOWER, compile=how), RunDir(tmp_path / how))
    assert graphs() > 0
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(done)[name], tensor)


def test_off_compiles_nothing(run: RunDir, traced: None) -> None:
    train_recipe(replace(TOWER, compile="off"), run)
    assert graphs() == 0


@pytest.mark.parametrize(
    ("patterns", "parts"), [("last", ["last"]), ("blocks.1,last", ["blocks.1", "last"]), ("blocks*", ["blocks"])]
)
def test_only_the_named_parts_are_compiled(run: RunDir, traced: None, patterns: str, parts: list[str]) -> None:
    plain = train_recipe(replace(TOWER, mode="eager"), run)
    done = train_recipe(replace(TOWER, mode="auto", compile_parts=patterns), run)
    assert done.mode == "graph"
    assert list_compiled(done.model) == parts
    assert graphs() > 0
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(done)[name], tensor)


def test_a_pattern_that_names_no_part_is_refused_with_the_closest(run: RunDir) -> None:
    with pytest.raises(BadValue, match=r"--compile-parts 'block' matches no name") as refused:
        build_training(replace(TOWER, compile_parts="block"), run)
    assert "blocks" in str(refused.value)


NAMED = Recipe(model="resnet50_v1", data=TOWER.data, steps=200)


@pytest.mark.parametrize(
    ("changes", "device", "ranks", "mode"),
    [
        ({}, "cuda", 1, "graph"),
        ({"steps": 0, "epochs": 3}, "cuda", 1, "graph"),
        ({"steps": 199}, "cuda", 1, "eager"),
        ({}, "cpu", 1, "eager"),
        ({}, "npu", 1, "eager"),
        ({}, "cuda", 2, "eager"),
        ({"deterministic": True}, "cuda", 1, "eager"),
        ({"model": Tower}, "cuda", 1, "eager"),
        ({"compile": "off"}, "cuda", 1, "eager"),
        ({"compile": "regional"}, "cpu", 1, "graph"),
        ({"mode": "graph"}, "cpu", 2, "graph"),
        ({"mode": "eager", "compile_parts": "head"}, "cuda", 1, "eager"),
    ],
)
def test_auto_compiles_where_it_is_known_to_pay(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], device: str, ranks: int, mode: str
) -> None:
    monkeypatch.setattr(compiling, "has_compiler", lambda: True)
    assert compiling.choose_mode(replace(NAMED, **changes), device, ranks, observed=False) == mode


def test_auto_compiles_nothing_that_is_observed_or_has_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "has_compiler", lambda: True)
    assert compiling.choose_mode(replace(NAMED, compile="whole"), "cuda", 1, observed=True) == "eager"
    monkeypatch.setattr(compiling, "has_compiler", lambda: False)
    assert compiling.choose_mode(NAMED, "cuda", 1, observed=False) == "eager"


def test_a_network_without_blocks_is_compiled_whole(run: RunDir, traced: None) -> None:
    train_recipe(replace(TOWER, model=build_normed_network), run)
    assert graphs() == 2  # training and evaluation


def test_thors_refreshes_see_blocks_that_are_not_compiled(run: RunDir, traced: None) -> None:
    recipe = replace(TOWER, optimizer=Thor(0.01, frequency=1))
    plain = train_recipe(replace(recipe, mode="eager"), run)
    done = train_recipe(recipe, run)
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(done)[name], tensor)


class Close(Callback):
    needs_every_step = True


def test_a_callback_that_needs_every_step_has_a_network_compiled_whole(run: RunDir, traced: None) -> None:
    done = build_training(TOWER, run, Close())
    assert not done.computation.compilation.parts
    assert list_compiled(done.model) == []


def test_a_dump_of_blocks_is_refused_with_the_way_out() -> None:
    with pytest.raises(BadValue, match="block by block cannot be dumped") as refused:
        check_dump(DumpOptions("0"), replace(TOWER, compile="regional"), 1)
    with pytest.raises(BadValue, match="block by block cannot be dumped"):
        check_dump(DumpOptions("0"), replace(TOWER, compile_parts="last"), 1)
    assert "--compile whole" in str(refused.value)


def test_what_was_compiled_is_reported_once(run: RunDir, traced: None, capsys: pytest.CaptureFixture[str]) -> None:
    train_recipe(TOWER, run)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Compiled")]
    assert len(lines) == 1
    assert lines[0].startswith("Compiled 4 blocks of the network as ")
    assert lines[0].endswith(f"kept for the next run in {os.environ[CACHE_VARIABLE]}")


def test_no_folder_is_named_if_compiled_code_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:

    network = Tower(3)
    compilation = Compilation(network, network, "off", device_graphs=False)
    compilation.is_underway = True
    monkeypatch.setattr("viaduct.training.compiling.get_compile_seconds", lambda: 2.0)
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert str(compilation.describe_compilation()).splitlines()[0] == "Compiled the network in 2.0 s"


def test_on_the_cpu_the_user_reads_that_compiling_may_not_pay(
    run: RunDir, traced: None, capsys: pytest.CaptureFixture[str]
) -> None:
    done = train_recipe(TOWER, run)
    printed = [line for line in capsys.readouterr().err.splitlines() if "--mode eager" in line]
    assert len(printed) == (done.torch_device.type == "cpu")


def test_the_cache_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "mine")
    set_compile_cache()
    assert os.environ[CACHE_VARIABLE] == "mine"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    set_compile_cache()
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "viaduct" / "compiled")
    assert (tmp_path / "viaduct" / "compiled").is_dir()


def test_a_cache_that_cannot_be_written_is_left_to_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    set_compile_cache()
    assert CACHE_VARIABLE not in os.environ


def test_a_cache_folder_that_torch_has_set_is_not_the_users(tmp_path: Path) -> None:
    code = (
        "import os, torch._dynamo\n"
        "from viaduct.training.compiling import CACHE_VARIABLE, set_compile_cache\n"
        "if CACHE_VARIABLE not in os.environ:  # torch 2.4 chooses later\n"
        "    from torch._inductor.runtime.runtime_utils import cache_dir\n"
        "    cache_dir()\n"
        "before = os.environ[CACHE_VARIABLE]\nset_compile_cache()\nprint(before)\nprint(os.environ[CACHE_VARIABLE])\n"
    )
    clean = {name: value for name, value in os.environ.items() if name != CACHE_VARIABLE} | {
        "XDG_CACHE_HOME": str(tmp_path)
    }
    answer = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    before, after = answer.stdout.split()
    assert "torchinductor" in before
    assert after == str(tmp_path / "viaduct" / "compiled")


def test_a_cache_folder_of_the_user_is_the_users_even_if_torch_would_set_the_same(tmp_path: Path) -> None:
    code = (
        "import os, viaduct.training.compiling as compiling, torch._dynamo\n"
        "compiling.set_compile_cache()\nprint(os.environ[compiling.CACHE_VARIABLE])\n"
    )
    mine = get_default_compile_cache()
    known = {**os.environ, CACHE_VARIABLE: mine, "XDG_CACHE_HOME": str(tmp_path)}
    answer = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == mine


COMPILED = """
import torch
from viaduct.training.compiling import Compilation
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.Flatten())
x = torch.randn(4, 3, 9, 9)
print(torch.allclose(Compilation(net, net, "whole", False).run(x), net(x), atol=1e-4))
"""


@pytest.mark.slow
@pytest.mark.skipif(not (which("g++") or which("clang++")), reason="torch.compile needs a C++ compiler on the CPU")
@pytest.mark.lengthy
def test_code_compiled_for_another_cpu_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    """Machines with different CPUs may share a home folder."""
    plain = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    narrower = "avx2" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "default"
    for capability in (None, narrower):
        more = {} if capability is None else {"ATEN_CPU_CAPABILITY": capability}
        given = {**plain, **more, CACHE_VARIABLE: str(tmp_path)}
        answer = subprocess.run([sys.executable, "-c", COMPILED], env=given, capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == "True", capability


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules, imported with its compiler
def test_a_single_pixel_in_bf16_is_whole_in_code_that_was_compiled_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    torch._dynamo.reset()
    recipe = replace(BF16, model=single, compile="whole", optimizer=Sgd(0.01))
    plain = train_recipe(replace(recipe, mode="eager"), RunDir(tmp_path / "plain"))
    done = train_recipe(recipe, RunDir(tmp_path / "graph"))
    assert any((tmp_path / "cache").iterdir())
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(done)[name], tensor, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own modules, imported with its compiler
def test_blocks_compiled_for_real_take_the_same_steps_and_are_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    torch._dynamo.reset()
    plain = train_recipe(replace(TOWER, mode="eager"), RunDir(tmp_path / "plain"))
    done = train_recipe(TOWER, RunDir(tmp_path / "graph"))
    assert any((tmp_path / "cache").iterdir())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    train_recipe(TOWER, RunDir(tmp_path / "again"))
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == graphs() > 0
    for name, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(done)[name], tensor, rtol=1e-4, atol=1e-5)


NORMED = replace(RECIPE, model=build_normed_network)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: ModuleSpec(name, None))


def wants_own_kernels(recipe: Recipe, compute: str = "bf16", device: str = "cuda", observed: bool = False) -> bool:
    return uses_own_kernels(recipe, compute, device, observed, recipe.mode)


OBSTACLES: dict[str, tuple[dict[str, Any], str]] = {
    "device": ({"recipe": NORMED, "device": "npu"}, "they are for cuda, and this run is on npu"),
    "precision": ({"recipe": NORMED, "compute": "fp32"}, "bf16 or fp16, and this run in fp32"),
    "freeze": ({"recipe": replace(NORMED, init=Init(freeze="stem"))}, "update the statistics of frozen batch norms"),
    "thor": ({"recipe": replace(NORMED, optimizer=Thor())}, "THOR observes"),
    "dump": ({"recipe": NORMED, "observed": True}, "a dump or another callback observes"),
    "whole": (
        {"recipe": replace(NORMED, mode="graph", compile="whole")},
        "cannot be part of a network compiled whole",
    ),
}


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("name", OBSTACLES)
def test_where_own_kernels_cannot_be_auto_does_without_and_on_is_refused(name: str) -> None:
    given, reason = OBSTACLES[name]
    assert not wants_own_kernels(**given)
    with pytest.raises(BadValue, match=f"--kernels on: .*{reason}"):
        wants_own_kernels(**given | {"recipe": replace(given["recipe"], kernels="on")})


def test_without_triton_there_are_no_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert not wants_own_kernels(NORMED)
    with pytest.raises(BadValue, match="Triton, which is not installed"):
        wants_own_kernels(replace(NORMED, kernels="on"))


@pytest.mark.usefixtures("triton")
def test_kernels_off_is_off() -> None:
    assert wants_own_kernels(NORMED)
    assert wants_own_kernels(replace(NORMED, kernels="on"))
    assert not wants_own_kernels(replace(NORMED, kernels="off"))


@pytest.mark.usefixtures("triton")
def test_a_run_on_the_cpu_has_no_own_kernels_and_refuses_them(run: RunDir) -> None:
    assert build_training(NORMED, run).computation.fused_count == 0
    with pytest.raises(BadValue, match="they are for cuda, and this run is on cpu"):
        build_training(replace(NORMED, kernels="on"), run)
