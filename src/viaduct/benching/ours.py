"""A recipe's own training steps, exactly those of `viaduct train`, as something that takes turns with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from viaduct.benching.shares import fetching
from viaduct.data.batches import Batch
from viaduct.data.records import Records
from viaduct.data.source import Dataset
from viaduct.data.synthetic import SYNTHETIC
from viaduct.devices.base import Device
from viaduct.recipes import Checkpoint, Evaluation, Log, Recipe
from viaduct.training.compiling import choose_mode, unheard_compile
from viaduct.training.loop import Training
from viaduct.training.own_kernels import kernels_for
from viaduct.training.precision import plan_for
from viaduct.training.rundir import RunDir
from viaduct.training.session import load_images
from viaduct.training.sink import describe_sink

FOREVER = 10**9
AUTO_SINK = 20  # steps; a window is a whole number of sinks, so they have a fixed length here
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

    @cached_property
    def endless(self) -> Recipe:
        return endless(self.recipe, self.synthetic)

    @cached_property
    def images(self) -> Dataset:
        """Found once, however often the measurement is repeated: they are not what is measured."""
        return load_images(self.endless.data, self.data)

    def refuse(self) -> None:
        """What a run would refuse: better said before anything is measured."""
        mode = choose_mode(self.endless, self.place.type, ranks=1, observed=False)
        kernels_for(self.endless, plan_for(self.recipe.precision, self.device), self.place.type, False, mode)
        _ = self.images


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


def fix_sink(recipe: Recipe, device: Device) -> Recipe:
    """Return the recipe with `sink="auto"` replaced by what can be measured in windows: 20 steps, or no sinks."""
    if recipe.sink != "auto":
        return recipe
    return replace(recipe, sink=AUTO_SINK if device.graph_capture() else 0)


class Ours:
    """Takes the steps of a recipe; what it takes them of, it fetches as a run does."""

    def __init__(self, setting: Setting) -> None:
        run = RunDir(setting.scratch)
        self.training = Training(setting.endless, run, setting.images, setting.device, setting.place, callbacks=[])
        self.training.prepare()
        self.batches = self.marked(self.training.iterate_batches())
        self.way = self.described()

    def marked(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            with fetching():
                batch = next(batches)
            yield batch

    def described(self) -> str:
        recipe = self.training.recipe
        compiled = self.training.computation.compilation.outcome
        blocks = [compiled] if compiled != "off" else []
        sink = [f"sink {recipe.sink}"] if recipe.sink else []
        kernels = ["own kernels"] if self.training.computation.fused else []
        return ", ".join([self.training.plan.compute, self.training.mode, *blocks, *sink, *kernels])

    def first(self) -> None:
        """The first step, driven by the host, sink or not."""
        self.training.run_step(next(self.batches))
        self.training.finish_steps(is_log_due=False)

    def __call__(self, steps: int) -> None:
        end = self.training.step + steps
        while self.training.step < end:
            self.training.advance(self.batches)

    def told(self) -> list[str]:
        """Why a sink is none, if so, and what else was asked for in vain."""
        lines = [describe_sink(self.training), unheard_compile(self.training.recipe)]
        return [line for line in lines if line]

    def facts(self) -> dict[str, Any]:
        """What was run, beside what was asked for; `sink_on_device` is known when the steps have been taken."""
        training = self.training
        return {
            "mode": training.mode,
            "compile": training.recipe.compile,
            "compiled": training.computation.compilation.outcome,
            "kernels": training.recipe.kernels,
            "own_kernels": training.computation.fused,
            "sink": training.recipe.sink,
            "sink_on_device": training.sink is not None and training.sink.replay is not None,
            "sink_obstacle": training.sink_obstacle,
        }

    def close(self) -> None:
        self.training.train_batches.close()
        self.training.validation.close()
