"""Changes by a callback during a run: the rate, the order of later epochs, the weights of losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.test_loop import resume_training
from training.tiny_runs import (
    PER_EPOCH,
    RECIPE,
    Recorder,
    build_normed_network,
    build_training,
    change_part,
    copy_weights,
    train_recipe,
)
from viaduct.devices import cpu
from viaduct.errors import BadValue
from viaduct.recipes import Cosine, Recipe
from viaduct.training import sink
from viaduct.training.callbacks import Callback, Checkpointing
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir

BASE = replace(RECIPE, model=build_normed_network, epochs=3, schedule=Cosine(warmup_epochs=0))
Change = Callable[[Training], None]


class ChangesAt(Callback):
    """Changes something after the step of that number."""

    every_step = False

    def __init__(self, step: int, change: Change) -> None:
        self.number, self.change = step, change

    def step(self, training: Training) -> None:
        if training.step == self.number:
            self.change(training)


def rates(recipe: Recipe, run: RunDir, *callbacks: Callback) -> list[float]:
    recorder = Recorder()
    train_recipe(recipe, run, *callbacks, recorder)
    return [log.lr for log in recorder.logs]


def test_the_schedule_goes_on_from_a_changed_rate(run: RunDir) -> None:
    plain = rates(BASE, run)
    halved = rates(BASE, run, ChangesAt(6, lambda training: training.change_learning_rate(factor=0.5)))
    assert halved[:6] == plain[:6]
    assert halved[6:] == pytest.approx([rate / 2 for rate in plain[6:]])
    fixed = rates(BASE, run, ChangesAt(6, lambda training: training.change_learning_rate(0.02)))
    assert fixed[6] == pytest.approx(0.02)
    assert fixed[7] / fixed[6] == pytest.approx(plain[7] / plain[6])


def order(run: RunDir, *callbacks: Callback) -> list[list[int]]:
    """Return the images of every step."""
    seen: list[list[int]] = []
    done = build_training(BASE, run, *callbacks)
    optimize = done.train_step.optimize

    def note(batch: Any) -> None:
        seen.append(batch.index.tolist())
        optimize(batch)

    done.train_step.optimize = note  # type: ignore[method-assign]
    with done.train_batches, done.validation:
        done.fit()
    return seen


@pytest.mark.parametrize(("step", "first"), [(PER_EPOCH, PER_EPOCH), (PER_EPOCH - 2, PER_EPOCH), (7, 2 * PER_EPOCH)])
def test_another_seed_orders_the_epochs_that_have_not_begun(run: RunDir, step: int, first: int) -> None:
    plain = order(run)
    changed = order(run, ChangesAt(step, lambda training: training.change_order_seed(99)))
    assert changed[:first] == plain[:first]
    assert changed[first:] != plain[first:]
    assert sorted(chain(*changed[first : first + PER_EPOCH])) == sorted(chain(*plain[:PER_EPOCH]))


class TwoHeaded(nn.Module):
    """With an auxiliary head in training."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.trunk, self.head, self.second = nn.Flatten(), nn.Linear(768, classes), nn.Linear(768, classes)

    def forward(self, images: Tensor) -> Any:
        seen = self.trunk(images)
        return (self.head(seen), self.second(seen)) if self.training else self.head(seen)


def test_a_head_whose_loss_weighs_nothing_learns_nothing(run: RunDir) -> None:
    recipe = replace(BASE, model=TwoHeaded, optimizer=replace(BASE.optimizer, weight_decay=0.0, momentum=0.0))
    begun = build_training(recipe, run)
    start = copy_weights(begun)
    off = train_recipe(recipe, run, ChangesAt(0, lambda t: None), Begins(lambda t: t.change_loss_weights(auxiliary=0)))
    assert torch.equal(copy_weights(off)["second.weight"], start["second.weight"])
    assert not torch.equal(copy_weights(off)["head.weight"], start["head.weight"])
    on = train_recipe(recipe, run, Begins(lambda t: t.change_loss_weights(main=0, auxiliary=1)))
    assert torch.equal(copy_weights(on)["head.weight"], start["head.weight"])


class Begins(Callback):
    def __init__(self, change: Change) -> None:
        self.change = change

    def start(self, training: Training) -> None:
        self.change(training)


CHANGES: dict[str, Change] = {
    "rate": lambda training: training.change_learning_rate(factor=0.3),
    "order": lambda training: training.change_order_seed(7),
    "weights": lambda training: training.change_loss_weights(main=0.5),
}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_outlives_an_interruption_and_holds_in_captured_steps(
    tmp_path: Path, name: str, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if captured:
        monkeypatch.setattr(cpu, "get_graph_class", lambda: object)
        monkeypatch.setattr(sink, "capture_graph", lambda device, work: work)
    recipe = change_part(replace(BASE, sink="auto" if captured else 0), "log", every_steps=4)
    change = ChangesAt(5, CHANGES[name])
    uninterrupted = train_recipe(recipe, RunDir(tmp_path / "whole"), change, Checkpointing())
    assert (uninterrupted.sink is not None) == captured
    run = RunDir(tmp_path / "parts")
    first = build_training(recipe, run, change, Checkpointing(), read_signal=lambda: first.step >= 8)
    with first.train_batches, first.validation:
        assert first.fit() == "interrupted"
    again = copy_weights(resume_training(recipe, run, list_checkpoints(run.checkpoints)[-1]))
    plain = copy_weights(train_recipe(recipe, RunDir(tmp_path / "plain")))
    assert all(torch.equal(again[key], tensor) for key, tensor in copy_weights(uninterrupted).items())
    assert not all(torch.equal(again[key], tensor) for key, tensor in plain.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda training: training.change_learning_rate(), "takes a rate or a factor"),
        (lambda training: training.change_learning_rate(0.1, 0.1), "takes a rate or a factor"),
        (lambda training: training.change_learning_rate(factor=-1), "factor is -1"),
        (lambda training: training.change_learning_rate(-1), "rate is -1"),
        (lambda training: training.change_learning_rate("fast"), "rate is 'fast'"),  # type: ignore[arg-type]
        (lambda training: training.change_loss_weights(main="x"), "main is 'x'"),  # type: ignore[arg-type]
        (lambda training: training.change_order_seed(10**30), "below 2"),
        (lambda training: training.change_order_seed(-1), "-1 is no seed"),
        (lambda training: training.change_loss_weights(main=float("nan")), "main is nan"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused(run: RunDir, change: Change, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        change(build_training(BASE, run))
