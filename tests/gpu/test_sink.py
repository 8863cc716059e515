"""Sinks on a real card: steps captured as a graph and replayed take the run where the host would have taken it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.sinks import BASE, RECIPES, list_losses
from training.test_compiling import Tower
from training.test_loop import resume_training
from training.tiny_runs import (
    RECIPE,
    Recorder,
    build_dropout_network,
    build_training,
    change_part,
    copy_weights,
    train_recipe,
)
from viaduct import devices
from viaduct.recipes import Amoebanet, Arrays, Ema, ImageSet, Log, Precision, Recipe, RmsProp, Sgd, Split
from viaduct.training.callbacks import Checkpointing
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's compiler and Triton
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]
Show = Callable[[str], None]
LAST_BITS = {"rtol": 2e-5, "atol": 2e-6}
ROUGHLY = {"rtol": 2e-2, "atol": 2e-3}  # half precision, whose gradients go through the same kernels all the same


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VIADUCT_TEST_DEVICE", "cuda")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses to be deterministic
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.empty_cache()


def exact(recipe: Recipe) -> Recipe:
    """Long enough to be replayed, and the same bits every time."""
    precision = replace(recipe.precision, tf32=False)
    return replace(recipe, deterministic=True, epochs=4, precision=precision)


def difference(one: list[float], other: list[float]) -> float:
    assert len(one) == len(other)
    return max(abs(a - b) for a, b in zip(one, other, strict=True) if a == a or b == b)


def is_captured(done: Training) -> bool:
    assert done.sink is not None
    assert done.sink.obstacle is None, done.sink.obstacle
    return done.sink.replay is not None


@pytest.mark.parametrize("name", RECIPES)
def test_replayed_steps_are_the_hosts_steps(tmp_path: Path, name: str, show: Show) -> None:
    recipe, alone, observer = exact(RECIPES[name]), Recorder(), Recorder()
    plain = train_recipe(recipe, RunDir(tmp_path / "plain"), alone)
    sunk = train_recipe(replace(recipe, sink=8), RunDir(tmp_path / "sunk"), observer)
    assert is_captured(sunk)
    first, second = copy_weights(sunk), copy_weights(plain)
    apart = max(float((first[key].double() - second[key].double()).abs().max()) for key in first)
    bits = all(torch.equal(first[key], second[key]) for key in first) and list_losses(observer) == list_losses(alone)
    losses_apart = difference(list_losses(observer), list_losses(alone))
    show(f"losses {losses_apart:.1e} apart, weights {apart:.1e}; same bits: {bits}")
    allowed = LAST_BITS if recipe.precision.compute == "fp32" else ROUGHLY
    torch.testing.assert_close(list_losses(observer), list_losses(alone), equal_nan=True, **allowed)
    for key in first:
        torch.testing.assert_close(first[key], second[key], **allowed)
    assert sunk.scale.get_state() == plain.scale.get_state()
    assert [log.lr for log in observer.logs] == [log.lr for log in alone.logs if log.step in observer.at("log")]
    if plain.ema and sunk.ema:
        assert sunk.ema.updates == plain.ema.updates
        for key, tensor in plain.ema.averages.items():
            torch.testing.assert_close(sunk.ema.averages[key], tensor, **allowed)


def test_dropout_in_a_graph_draws_the_numbers_that_the_host_would_have_drawn(tmp_path: Path) -> None:
    recipe = exact(
        replace(BASE, model=build_dropout_network, optimizer=Sgd(0.125, momentum=0.5), schedule=RECIPE.schedule)
    )
    plain = train_recipe(recipe, RunDir(tmp_path / "plain"))
    drawn = torch.cuda.get_rng_state()
    sunk = train_recipe(replace(recipe, sink=8), RunDir(tmp_path / "sunk"))
    assert is_captured(sunk)
    assert torch.equal(torch.cuda.get_rng_state(), drawn)  # a checkpoint after a sink draws on as without
    for key, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(sunk)[key], tensor, **LAST_BITS)


@pytest.mark.parametrize("stop", [8, 11])
@pytest.mark.parametrize("name", ["dropout", "averaged weights", "loss scale"])
def test_a_run_resumed_within_a_sink_ends_where_it_would_have(tmp_path: Path, name: str, stop: int) -> None:
    recipe = replace(exact(RECIPES[name]), sink=8)
    uninterrupted = train_recipe(recipe, RunDir(tmp_path / "whole"), Checkpointing())
    run = RunDir(tmp_path / "parts")
    first = build_training(recipe, run, Checkpointing(), read_signal=lambda: first.step >= stop)
    with first.train_batches, first.validation:
        assert first.fit() == "interrupted"
    saved = list_checkpoints(run.checkpoints)[-1]
    assert saved.step == stop
    again = resume_training(recipe, run, saved)
    allowed = LAST_BITS if recipe.precision.compute == "fp32" else ROUGHLY
    for key, tensor in copy_weights(uninterrupted).items():
        torch.testing.assert_close(copy_weights(again)[key], tensor, **allowed)


def test_batches_that_come_from_the_host_arrive_whole(tmp_path: Path) -> None:
    """Made on a stream of their own by threads, and read by the replayed steps."""
    recipe = exact(change_part(BASE, "data", auto_augment="randaugment", workers=2))
    alone, observer = Recorder(), Recorder()
    train_recipe(recipe, RunDir(tmp_path / "plain"), alone)
    assert is_captured(train_recipe(replace(recipe, sink=8), RunDir(tmp_path / "sunk"), observer))
    torch.testing.assert_close(list_losses(observer), list_losses(alone), **LAST_BITS)


class Curious(nn.Module):
    """Asks the device for a number in every step, and forgets some of what it saw."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inside = build_dropout_network(classes)

    def forward(self, images: Tensor) -> Tensor:
        made: Tensor = self.inside(images)
        return made * (1.0 if made.sum().item() < 1e9 else 2.0)


def test_a_network_that_asks_the_device_falls_back_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], show: Show
) -> None:
    recipe = exact(replace(BASE, model=Curious))
    alone, observer = Recorder(), Recorder()
    train_recipe(recipe, RunDir(tmp_path / "plain"), alone)
    sunk = train_recipe(replace(recipe, sink=8), RunDir(tmp_path / "sunk"), observer)
    assert sunk.sink is not None
    assert sunk.sink.replay is None
    assert "cannot be captured" in str(sunk.sink.obstacle)
    show(str(sunk.sink.obstacle))
    assert capsys.readouterr().err.count("--sink 8: the host drives each step") == 1
    torch.testing.assert_close(list_losses(observer), list_losses(alone), **LAST_BITS)


def test_blocks_that_are_compiled_can_be_captured(tmp_path: Path, show: Show) -> None:
    recipe = replace(exact(replace(BASE, model=Tower)), deterministic=False)
    alone, observer = Recorder(), Recorder()
    train_recipe(recipe, RunDir(tmp_path / "plain"), alone)
    sunk = train_recipe(replace(recipe, mode="graph", sink=8), RunDir(tmp_path / "sunk"), observer)
    assert is_captured(sunk)
    assert len(sunk.computation.compilation.parts) == 4
    show(f"losses {difference(list_losses(observer), list_losses(alone)):.1e} apart")
    torch.testing.assert_close(list_losses(observer), list_losses(alone), rtol=1e-3, atol=1e-3)


def noise(size: int, count: int, classes: int) -> ImageSet:
    rng = np.random.default_rng(0)
    split = Split(rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8), rng.integers(0, classes, count))
    return ImageSet(split, Split(split.images[:16], split.labels[:16]), tuple(map(str, range(classes))))


def large(model: str, size: int, batch: int, **more: Any) -> tuple[Recipe, ImageSet]:
    images = noise(size, 2 * batch, 10)
    data = Arrays(batch, size, classes=10, make=lambda path: images)
    recipe = replace(RECIPE, model=model, data=data, optimizer=Sgd(0.01), steps=10**6, log=Log(10**6))
    recipe = change_part(recipe, "evaluation", every_epochs=0)
    return replace(recipe, precision=Precision("bf16"), **more), images


def prepare_training(recipe: Recipe, images: ImageSet, run: RunDir) -> Training:
    room, device = devices.pick("cuda")
    made = Training(recipe, run, images, room, device, [])
    made.begin_training()
    return made


def milliseconds(made: Training, steps: int) -> float:
    """Return the time of one step after as many warm-up steps."""
    batches = made.iterate_batches()
    for begun in (False, True):
        torch.cuda.synchronize()
        end, began = made.step + steps, time.perf_counter()
        while made.step < end:
            made.advance(batches)
        torch.cuda.synchronize()
        if begun:
            return 1000 * (time.perf_counter() - began) / steps
    raise AssertionError


def found_losses(made: Training, steps: int) -> list[float]:
    batches, found = made.iterate_batches(), Recorder()
    made.callbacks.append(found)
    while made.step < steps:
        made.advance(batches)
    made.log()
    return list_losses(found)[:steps]


NETWORKS: dict[str, dict[str, Any]] = {
    "resnet50_v1": {},
    "resnext50": {},
    "amoebanet_d": {
        "network": Amoebanet(cells=3, filters=64, drop_path_keep=0.9),
        "optimizer": RmsProp(1e-4),  # at usual rates a last bit grows to a tenth of the loss in three steps
        "ema": Ema(0.99),
    },
}


@pytest.mark.parametrize("kernels", ["off", "auto"])
@pytest.mark.parametrize("model", NETWORKS)
def test_real_networks_learn_alike_in_sinks(tmp_path: Path, model: str, kernels: Any, show: Show) -> None:
    recipe, images = large(model, 128, 16, kernels=kernels, **NETWORKS[model])
    alone = found_losses(prepare_training(recipe, images, RunDir(tmp_path / "host")), 16)
    sunk = prepare_training(
        replace(recipe, sink=8), images, RunDir(tmp_path / "sunk")
    )  # here random numbers begin anew
    sunk_losses = found_losses(sunk, 16)
    assert is_captured(sunk)
    show(
        f"{sunk.computation.fused_count} fused parts; first losses {alone[:3]} and {sunk_losses[:3]}; "
        f"ends {alone[-1]} {sunk_losses[-1]}"
    )
    torch.testing.assert_close(sunk_losses[:4], alone[:4], rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("model", ["resnet50_v1", "resnext50"])
def test_a_sink_is_no_slower_than_the_host_at_small_batches(tmp_path: Path, model: str, show: Show) -> None:
    recipe, images = large(model, 224, 32)
    found: dict[str, float] = {}
    for name, change in {
        "host": {"kernels": "off"},
        "sink": {"kernels": "off", "sink": 20},
        "sink, own kernels": {"sink": 20},
    }.items():
        made = prepare_training(replace(recipe, **change), images, RunDir(tmp_path / name))
        found[name] = milliseconds(made, 40)
        del made
        torch.cuda.empty_cache()
    show(", ".join(f"{name} {ms:.2f} ms ({32000 / ms:,.0f}/s)" for name, ms in found.items()))
    assert found["sink"] < 1.05 * found["host"]
