"""The averaged weights: TensorFlow's formula, what evaluation sees, and what is saved."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.tiny_runs import (
    RECIPE,
    After,
    build_normed_network,
    build_training,
    copy_weights,
    make_images,
    train_recipe,
)
from viaduct import devices
from viaduct.data.batches import BatchStream
from viaduct.errors import BadValue
from viaduct.recipes import Ema, Evaluation, Precision
from viaduct.training import checkpoint
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.ema import AveragedWeights
from viaduct.training.loop import Training
from viaduct.training.metrics import evaluate
from viaduct.training.optim import build_loss
from viaduct.training.precision import Computation, PrecisionPlan
from viaduct.training.rundir import RunDir

AVERAGED = replace(RECIPE, model=build_normed_network, ema=Ema(0.8))
FP32 = PrecisionPlan("fp32", False, False)


def computation(model: nn.Module, plan: PrecisionPlan = FP32) -> Computation:
    return Computation(model, plan, torch.device("cpu"))


def network() -> nn.Module:
    torch.manual_seed(3)
    return build_normed_network(4)


def move(model: nn.Module, step: int) -> None:
    """Another value for every weight and every batch norm statistic."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(step) if not tensor.is_floating_point() else tensor.add_(torch.cos(tensor * step))


@pytest.mark.parametrize("num_updates", [True, False])
def test_the_averages_are_tensorflows_of_weights_and_statistics(num_updates: bool) -> None:
    model = network()
    shadow, run = AveragedWeights(Ema(0.4, num_updates), model), computation(model)
    expected = {name: value.double() for name, value in model.state_dict().items() if value.is_floating_point()}
    for step in range(1, 9):
        move(model, step)
        shadow.update(run)
        decay = min(0.4, (1 + step) / (10 + step)) if num_updates else 0.4
        for name, average in expected.items():
            expected[name] = decay * average + (1 - decay) * model.state_dict()[name].double()
    assert {"1.running_mean", "1.running_var", "0.weight", "5.bias"} < set(expected)
    for name, average in expected.items():
        torch.testing.assert_close(shadow.averages[name].double(), average, rtol=1e-5, atol=1e-6)


def test_the_average_is_tensorflows_own() -> None:
    tf = pytest.importorskip("tensorflow", reason="compares with tf.train; install viaduct[tf]").compat.v1
    model = nn.Linear(3, 2, bias=False)
    start, shadow = model.weight.detach().numpy().copy(), AveragedWeights(Ema(0.3), model)
    with tf.Graph().as_default(), tf.Session() as session:
        weight = tf.get_variable("weight", initializer=start)
        number = tf.placeholder(tf.float32)
        average = tf.train.ExponentialMovingAverage(0.3, num_updates=number)
        apply = average.apply([weight])
        fed = tf.placeholder(tf.float32, start.shape)
        assign = weight.assign(fed)
        session.run(tf.global_variables_initializer())
        for step in range(1, 7):
            move(model, step)
            shadow.update(computation(model))
            session.run(assign, {fed: model.weight.detach().numpy()})
            session.run(apply, {number: step})
        theirs = session.run(average.average(weight))
    np.testing.assert_allclose(shadow.averages["weight"].numpy(), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "plan", [FP32, PrecisionPlan("bf16", True, False), PrecisionPlan("bf16", True, True)], ids=["fp32", "O2", "O3"]
)
def test_the_network_has_the_averages_and_afterwards_its_weights_again(plan: PrecisionPlan) -> None:
    model = network()
    run, images = computation(model, plan), torch.randn(3, 3, 16, 16)
    run.train(False)
    shadow = AveragedWeights(Ema(0.5), model)
    before = run(images).detach()
    move(model, 3)
    run.publish_weights()
    run.publish_statistics()
    shadow.updates = 0
    after = run(images).detach()
    held = [tensor.data_ptr() for tensor in (*run.network.parameters(), *run.network.buffers())]
    with shadow.swap_in(run):
        assert torch.equal(run(images), before)
    assert torch.equal(run(images), after)
    assert not torch.equal(before, after)
    # Compiled code and captured graphs hold on to the tensors themselves.
    assert held == [tensor.data_ptr() for tensor in (*run.network.parameters(), *run.network.buffers())]


def test_the_network_has_its_weights_again_after_an_error() -> None:
    model = network()
    run, shadow = computation(model), AveragedWeights(Ema(0.5), model)
    move(model, 2)
    own = model[0].weight.detach().clone()
    with pytest.raises(KeyboardInterrupt), shadow.swap_in(run):
        raise KeyboardInterrupt
    assert torch.equal(model[0].weight, own)


def test_a_run_evaluates_the_averages_and_trains_on_with_its_weights(run: RunDir) -> None:
    plain = train_recipe(replace(AVERAGED, ema=None), run)
    averaged = train_recipe(AVERAGED, run)
    for name, tensor in copy_weights(plain).items():
        assert torch.equal(copy_weights(averaged)[name], tensor)
    assert averaged.ema is not None
    assert averaged.ema.updates == averaged.steps
    assert loss_of(averaged.ema.build_state_dict(averaged.model), averaged) == pytest.approx(
        averaged.score.loss, rel=1e-5
    )
    assert loss_of(copy_weights(plain), plain) == pytest.approx(plain.score.loss, rel=1e-5)
    assert averaged.score.loss != pytest.approx(plain.score.loss, rel=1e-3)


def validation() -> BatchStream:
    return RECIPE.data.batches(make_images(None).validation, device=torch.device("cpu"), train=False, seed=1)


def loss_of(tensors: dict[str, Tensor], run: Training) -> float:
    model = build_normed_network(4)
    model.load_state_dict(tensors)
    model.eval()
    found = evaluate(model, validation(), 4, build_loss(run.recipe, training=False))
    assert found is not None
    return found.loss


def test_the_first_average_begins_with_weights_that_were_loaded_meanwhile(run: RunDir) -> None:
    state = build_training(AVERAGED, run)
    with torch.no_grad():
        state.model[5].weight.fill_(7.0)
    seen: list[Tensor] = []
    state.callbacks.append(After(1, lambda now: seen.append(now.ema.averages["5.weight"].clone())))
    with state.train_batches, state.validation:
        state.fit()
    assert float(seen[0].mean()) == pytest.approx(7.0, abs=0.2)


def saved_tensors(saved: SavedCheckpoint) -> dict[str, dict[str, Tensor]]:
    return {"model": saved.read_model(), "ema": saved.read_averaged_weights()}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "O2", "O3"])
def test_an_interrupted_run_ends_with_the_same_bytes(
    tmp_path: Path, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, _ = devices.pick(os.environ.get("VIADUCT_TEST_DEVICE", "cpu"))
    monkeypatch.setattr(room, "list_native_dtypes", lambda: ("bf16",))
    recipe = replace(AVERAGED, precision=Precision(precision, loss_scale=1.0), evaluation=Evaluation(every_epochs=0.6))
    straight = train_recipe(recipe, RunDir(tmp_path / "straight"))
    broken = RunDir(tmp_path / "broken")
    train_recipe(replace(recipe, steps=4), broken, After(4, lambda now: now.save()))
    resumed = build_training(recipe, broken)
    resumed.restore(SavedCheckpoint(broken.checkpoints / "step-4"))
    with resumed.train_batches, resumed.validation:
        resumed.fit()
    ours, theirs = saved_tensors(straight.save()), saved_tensors(resumed.save())
    for kind in ours:
        for name, tensor in ours[kind].items():
            assert torch.equal(tensor, theirs[kind][name]), (kind, name)
    assert not torch.equal(ours["model"]["0.weight"], ours["ema"]["0.weight"])
    assert not torch.equal(ours["model"]["1.running_mean"], ours["ema"]["1.running_mean"])


def test_damaged_averages_are_a_damaged_checkpoint(run: RunDir) -> None:
    saved = train_recipe(AVERAGED, run).save()
    assert saved.find_damage() is None
    file = saved.path / checkpoint.EMA_FILE
    file.write_bytes(file.read_bytes()[:-2] + b"\xff\xff")
    assert "ema.safetensors has the right size but not the bytes" in str(saved.find_damage())
    file.unlink()
    assert "ema.safetensors is missing" in str(saved.find_damage())


def test_without_averages_no_file_is_written_for_them(run: RunDir) -> None:
    saved = train_recipe(replace(AVERAGED, ema=None), run).save()
    assert not (saved.path / checkpoint.EMA_FILE).exists()


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_a_decay_that_averages_nothing_is_refused(decay: float) -> None:
    with pytest.raises(BadValue, match=rf"ema.decay is {decay}; it must be at least 0 and below 1"):
        Ema(decay)
