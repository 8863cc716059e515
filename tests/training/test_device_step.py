"""A step that reads nothing from the host computes what the host's step does."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from training.sinks import BASE, CLOSE, RECIPES, list_losses, list_optimizer_state, train_in_sinks
from training.tiny_runs import (
    Recorder,
    build_training,
    copy_weights,
    train_recipe,
)
from viaduct.recipes import Ema, Precision, Sgd
from viaduct.training.callbacks import (
    Callback,
)
from viaduct.training.device_step import DeviceScale, DeviceStep
from viaduct.training.loop import Training
from viaduct.training.optimizer_support import support_optimizer
from viaduct.training.precision import LossScale
from viaduct.training.rundir import RunDir
from viaduct.training.sink import Work
from viaduct.training.step import TrainingStep


def test_a_captured_step_leaves_nothing_in_python(run: RunDir) -> None:
    """Whatever it changes must be a tensor in its place: a replay changes nothing else."""
    seen: list[dict[str, Any]] = []

    def capture(work: Work) -> Work:
        def state() -> dict[str, Any]:
            step: TrainingStep = work.step  # type: ignore[attr-defined]
            groups = [
                {name: value for name, value in group.items() if name != "params"}
                for group in step.optimizer.param_groups
            ]
            addresses = [tensor.data_ptr() for tensor in step.computation.master.state_dict().values()]
            assert step.ema is not None
            return {
                "groups": groups,
                "addresses": addresses,
                "gradients": [parameter.grad for parameter in step.parameters],
                "pending": len(step.results),
                "updates": step.ema.updates,
                "step": step.progress.step,
            }

        before = state()
        work()
        seen.extend((before, state()))
        return work

    train_in_sinks(replace(BASE, ema=Ema(0.9), sink=6), run, capture)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", RECIPES)
def test_the_step_that_is_captured_computes_the_same(tmp_path: Any, name: str) -> None:
    recipe, alone, observer = replace(RECIPES[name], sink=4), Recorder(), Recorder()
    plain = train_recipe(replace(recipe, sink=0), RunDir(tmp_path / "plain"), alone)
    replays: list[int] = []

    def capture(work: Work) -> Work:
        def replay() -> None:
            replays.append(1)
            work()

        return replay

    sunk = train_in_sinks(recipe, RunDir(tmp_path / "sunk"), capture, observer)
    assert len(replays) >= 4
    torch.testing.assert_close(list_losses(observer), list_losses(alone), **CLOSE)
    for key, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(sunk)[key], tensor, **CLOSE)
    for first, second in zip(list_optimizer_state(sunk), list_optimizer_state(plain), strict=True):
        torch.testing.assert_close(first, second, **CLOSE)
    assert sunk.scale.get_state() == plain.scale.get_state()
    assert [log.lr for log in observer.logs] == [log.lr for log in alone.logs if log.step in observer.at("log")]
    if plain.ema and sunk.ema:
        assert sunk.ema.updates == plain.ema.updates
        for key, tensor in plain.ema.averages.items():
            torch.testing.assert_close(sunk.ema.averages[key], tensor, **CLOSE)


@pytest.mark.parametrize("optimizer", [Sgd(0.1, weight_decay=1e-3), Sgd(0.1, nesterov=True), Sgd(0.1, momentum=0.0)])
def test_sgd_that_is_not_fused_reads_its_rate_on_the_device_too(run: RunDir, optimizer: Sgd) -> None:
    class Unfused(Callback):
        def start(self, training: Training) -> None:
            for group in training.optimizer.param_groups:
                group["fused"] = False

    recipe, alone, observer = replace(BASE, optimizer=optimizer, sink=4), Recorder(), Recorder()
    train_recipe(replace(recipe, sink=0), run, alone, Unfused())
    sunk = train_in_sinks(recipe, run, lambda work: work, observer, Unfused())
    assert support_optimizer(sunk.optimizer).find_capture_obstacle(skips_steps=False) is None
    assert "cannot skip" in str(support_optimizer(sunk.optimizer).find_capture_obstacle(skips_steps=True))
    torch.testing.assert_close(list_losses(observer), list_losses(alone), **CLOSE)


def test_steps_that_overflow_on_the_device_are_skipped_and_counted(run: RunDir) -> None:
    recipe = replace(RECIPES["loss scale that overflows now and then"], sink=4)
    sunk, first = train_in_sinks(recipe, run, lambda work: work), build_training(recipe, run)
    first.run_step(next(first.iterate_batches()))
    assert first.scale.skipped == 0  # the first step is the host's
    assert sunk.scale.skipped > 1
    assert sunk.ema is not None
    assert sunk.ema.updates == sunk.step - sunk.scale.skipped


@pytest.mark.parametrize(
    "precision",
    [
        Precision("fp16", loss_scale="dynamic", scale_start=8.0, scale_grow_every=3),
        Precision("fp16", loss_scale="dynamic", scale_start=4.0, scale_grow_every=2, scale_shrink_after=2),
        Precision("fp16", loss_scale=1024.0),
    ],
)
def test_the_loss_scale_on_the_device_follows_the_one_on_the_host(precision: Precision) -> None:
    host, behind = LossScale(precision, "fp16"), LossScale(precision, "fp16")
    device = DeviceScale(behind, torch.device("cpu"))
    device.load_host_state()
    rng = random.Random(3)
    overflows = [rng.random() < 0.4 for _ in range(200)]
    for overflow in overflows:
        gradients = [torch.tensor([1.0, torch.inf if overflow else 2.0])]
        value = device.value.item()
        device.unscale(gradients)
        assert gradients[0][0] == 1 / value
        device.update()
        host.update(finite=not overflow)
        assert device.value.item() == host.value
    assert device.finish() == sum(overflows)
    assert behind.get_state() == host.get_state()
    assert behind.streak == host.streak


def test_a_batch_that_is_loaded_does_not_move(run: RunDir) -> None:
    """A captured graph reads from the addresses that it was captured with."""
    state = build_training(BASE, run)
    batches = state.train_batches.epoch(0)
    first, second = next(iter(batches)), next(iter(batches))
    step = DeviceStep(state.train_step, first, 2)
    address = step.batch.images.data_ptr()
    for batch in (first, second):
        step.load_batch(batch)
        assert torch.equal(step.batch.images, batch.images)
        assert torch.equal(step.batch.labels, batch.labels)
    assert step.batch.images.data_ptr() == address


def test_rates_and_progress_of_the_coming_steps_are_on_the_device(run: RunDir) -> None:
    state = build_training(BASE, run)
    step = DeviceStep(state.train_step, next(iter(state.train_batches.epoch(0))), 4)
    state.progress.step = 2
    step.load_schedule(3)
    expected = [[*state.progress.rates_at(number), number / state.progress.steps] for number in (2, 3, 4)]
    torch.testing.assert_close(step.table[:3], torch.tensor(expected))
    with step.use_device_rates():
        assert state.optimizer.param_groups[0]["lr"] is not None
        assert isinstance(state.optimizer.param_groups[0]["lr"], Tensor)
    assert isinstance(state.optimizer.param_groups[0]["lr"], float)
