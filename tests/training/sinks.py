"""Recipes to run in sinks, and the CPU in place of a device that captures steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from training.tiny_runs import RECIPE, Recorder, build_dropout_network, build_normed_network, build_training
from viaduct.recipes import AdamW, Cosine, CrossEntropy, Ema, Lars, Precision, Recipe, RmsProp, Sgd, Thor
from viaduct.training.callbacks import Callback
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir
from viaduct.training.sink import Work

BASE = replace(RECIPE, model=build_normed_network, epochs=3, schedule=Cosine(warmup_epochs=1))
FP16 = Precision("fp16", loss_scale="dynamic", scale_start=2.0**24, scale_grow_every=4)
RISING = Precision("fp16", loss_scale="dynamic", scale_start=2.0**12, scale_grow_every=1, scale_shrink_after=2)
RECIPES = {
    "sgd": BASE,
    "nesterov without momentum's start": replace(BASE, optimizer=Sgd(0.1, nesterov=True)),
    "averaged weights": replace(BASE, ema=Ema(0.9)),
    "steady average": replace(BASE, ema=Ema(0.8, num_updates=False)),
    "label smoothing": replace(BASE, loss=CrossEntropy(0.1)),
    "mixup": replace(BASE, mixup=0.2),
    "accumulation": replace(BASE, accumulate=2, clip_norm=0.5),
    "dropout": replace(BASE, model=build_dropout_network),
    "adamw": replace(BASE, optimizer=AdamW(1e-2)),
    "rmsprop": replace(BASE, optimizer=RmsProp(0.05)),
    "lars": replace(BASE, optimizer=Lars(form="contrib")),
    "lars of resnext": replace(BASE, optimizer=Lars(0.5, form="resnext")),
    "thor": replace(BASE, optimizer=Thor(0.01, frequency=4)),
    "O2 in bf16": replace(BASE, precision=Precision("O2"), ema=Ema(0.9)),
    "loss scale": replace(BASE, precision=FP16, ema=Ema(0.9)),
    "loss scale that overflows now and then": replace(BASE, precision=RISING, ema=Ema(0.9)),
    "fixed loss scale": replace(BASE, precision=Precision("fp16", loss_scale=1024.0)),
}
# A rate in fp32 instead of a Python number, and one more rounding in an average: never the last bit but one.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def list_losses(recorder: Recorder) -> list[float]:
    return [loss for record in recorder.logs for loss in record.losses]


def list_optimizer_state(done: Training) -> list[Any]:
    state = done.optimizer.state_dict()
    found: list[Any] = [group["lr"] for group in state["param_groups"]]
    for number in sorted(state["state"]):
        found += [state["state"][number][name] for name in sorted(state["state"][number])]
    return found


def train_in_sinks(recipe: Recipe, run: RunDir, capture: Callable[[Work], Work], *others: Callback) -> Training:
    sunk = build_training(recipe, run, *others)
    assert sunk.sink is not None
    sunk.sink.obstacle = None
    sunk.sink.capture = capture
    with sunk.train_batches, sunk.validation:
        sunk.fit()
    return sunk
