"""A recipe's own training steps, exactly those of `viaduct train`, as something that takes turns with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from viaduct.benching.shares import fetching
from viaduct.data.batches import Batch
from viaduct.data.records import SYNTHETIC, Records
from viaduct.devices.base import Device
from viaduct.recipes import Checkpoint, Evaluation, Log, Recipe
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir
from viaduct.training.session import load_images

FOREVER = 10**9
RATE = 1e-6  # noise teaches nothing: at the recipe's own rate the weights would run away, and NaN can be slow


@dataclass(frozen=True)
class Setting:
    """What is measured: a recipe as it stands after all flags, somewhere."""

    recipe: Recipe
    data: Path
    device: Device
    place: torch.device
    scratch: Path  # a folder that a run may write to

    @property
    def synthetic(self) -> bool:
        return self.data == SYNTHETIC


def endless(recipe: Recipe, synthetic: bool) -> Recipe:
    """The recipe without an end, an evaluation or a checkpoint; on noise where no data are given."""
    changes: dict[str, Any] = {
        "steps": FOREVER,
        "evaluation": Evaluation(every_epochs=0),
        "checkpoint": Checkpoint(every_minutes=0),
        "log": Log(every_steps=recipe.log.every_steps),
        "callbacks": (),
    }
    if hasattr(recipe.optimizer, "lr"):
        changes["optimizer"] = replace(recipe.optimizer, lr=RATE)  # type: ignore[type-var]
    if synthetic:
        source = recipe.data
        changes["data"] = Records(source.global_batch, source.size, classes=source.classes, eval_batch=1)
    return replace(recipe, **changes)


class Ours:
    """Takes the steps of a recipe; what it takes them of, it fetches as a run does."""

    def __init__(self, setting: Setting) -> None:
        recipe = endless(setting.recipe, setting.synthetic)
        images = load_images(recipe.data, setting.data)
        run = RunDir(setting.scratch)
        self.training = Training(recipe, run, images, setting.device, setting.place, callbacks=[])
        self.training.to_training()
        if self.training.shadow:
            self.training.shadow.begin()
        self.batches = self.marked(self.training.coming_batches())
        self.way = self.described()

    def marked(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            with fetching():
                batch = next(batches)
            yield batch

    def described(self) -> str:
        recipe = self.training.recipe
        sink = [f"sink {recipe.sink}"] if recipe.sink else []
        kernels = ["own kernels"] if self.training.computation.fused else []
        return ", ".join([self.training.plan.compute, recipe.mode, *sink, *kernels])

    def first(self) -> None:
        """The first step, driven by the host, sink or not."""
        self.training.advance(next(self.batches))

    def __call__(self, steps: int) -> None:
        end = self.training.step + steps
        while self.training.step < end:
            self.training.proceed(self.batches)

    @property
    def told(self) -> str | None:
        """Why a sink is none, if so."""
        return self.training.sink.told() if self.training.sink else None

    def close(self) -> None:
        self.training.train_batches.close()
        self.training.validation.close()
