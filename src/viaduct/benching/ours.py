"""The benchmark's own variant: a recipe's training steps, run by the loop of `viaduct train`.

The recipe is changed (`make_endless`): it never ends and has a tiny learning rate, and it has no evaluations,
checkpoints, callbacks, trackers and TensorBoard records. A sink is a number of steps that the device takes by itself,
as one replay of a captured graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

from viaduct.benching.shares import FETCH
from viaduct.data.batches import Batch
from viaduct.data.records import Records
from viaduct.data.source import Dataset
from viaduct.data.synthetic import SYNTHETIC
from viaduct.devices.base import Device
from viaduct.recipes import Checkpoint, Evaluation, Log, Recipe
from viaduct.training.compiling import choose_mode, describe_unused_compile, uses_own_kernels
from viaduct.training.images import load_images
from viaduct.training.loop import Training
from viaduct.training.precision import plan_precision
from viaduct.training.rundir import RunDir
from viaduct.training.sink import describe_sink

FOREVER = 10**9  # number of steps of the changed recipe: more than any benchmark takes
# Length of a sink in steps for a recipe with sink="auto". It is fixed, as a window must be a whole number of sinks.
AUTO_SINK = 20
LEARNING_RATE = 1e-6  # with the recipe's own rate, weights diverge on noise images, and NaN can be slow


@dataclass(frozen=True)
class Setting:
    """Recipe with all flags applied, its data, and the device to measure it on."""

    recipe: Recipe
    data: Path  # folder of the recipe's data, or SYNTHETIC: noise images
    device: Device
    torch_device: torch.device
    scratch: Path  # a folder that a run may write to

    @property
    def synthetic(self) -> bool:
        return self.data == SYNTHETIC

    @cached_property
    def endless_recipe(self) -> Recipe:
        return make_endless(self.recipe, self.synthetic)

    @cached_property
    def images(self) -> Dataset:
        """Training images, loaded once for all repetitions and before anything is measured."""
        return load_images(self.endless_recipe.data, self.data)

    def check_supported(self) -> None:
        """Choose mode and kernels and load the data, so that their errors are raised before anything is measured."""
        device_type, plan = self.torch_device.type, plan_precision(self.recipe.precision, self.device)
        # `observed` would be True if a callback looked at every step; a benchmark has no callbacks.
        mode = choose_mode(self.endless_recipe, device_type, ranks=1, observed=False)
        uses_own_kernels(self.endless_recipe, plan.compute, device_type, observed=False, mode=mode)
        _ = self.images  # a cached property: it loads the data


def make_endless(recipe: Recipe, synthetic: bool) -> Recipe:
    """Return the recipe as a benchmark runs it (see the module's docstring).

    With `synthetic` its data are `Records` with the same batch, size and classes, which yield noise images.
    """
    changes: dict[str, Any] = {
        "steps": FOREVER,
        "evaluation": Evaluation(every_epochs=0),
        "checkpoint": Checkpoint(every_minutes=0),
        "log": Log(every_steps=recipe.log.every_steps),
        "callbacks": (),
    }
    if hasattr(recipe.optimizer, "lr"):
        changes["optimizer"] = replace(recipe.optimizer, lr=LEARNING_RATE)  # type: ignore[type-var]
    if synthetic:
        source = recipe.data
        changes["data"] = Records(source.global_batch, source.size, classes=source.classes, eval_batch=1)
    return replace(recipe, **changes)


def fix_sink(recipe: Recipe, device: Device) -> Recipe:
    """Return the recipe with `sink="auto"` replaced by a fixed length: 20 steps, or 0 without graph capture."""
    if recipe.sink != "auto":
        return recipe
    return replace(recipe, sink=AUTO_SINK if device.get_graph_class() else 0)


def mark_fetches(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches; annotate for the profiler the time in which each is fetched."""
    while True:
        with record_function(FETCH):
            batch = next(batches)
        yield batch


class Ours:
    """Runs a recipe's training steps and fetches its batches as a training run does."""

    def __init__(self, setting: Setting) -> None:
        run = RunDir(setting.scratch)
        self.training = Training(
            setting.endless_recipe, run, setting.images, setting.device, setting.torch_device, callbacks=[]
        )
        self.training.begin_training()
        self.batches = mark_fetches(self.training.iterate_batches())
        self.description = self.describe_mode()

    def describe_mode(self) -> str:
        """Return precision, mode, sink and kernels in a few words, such as `bf16, graph, sink 20`."""
        recipe = self.training.recipe
        compiled = self.training.computation.compilation.outcome
        blocks = [compiled] if compiled != "off" else []
        sink = [f"sink {recipe.sink}"] if recipe.sink else []
        kernels = ["own kernels"] if self.training.computation.fused_count else []
        return ", ".join([self.training.precision_plan.compute, self.training.mode, *blocks, *sink, *kernels])

    def run_first_step(self) -> None:
        """Run one step from the host, even if the recipe has a sink."""
        self.training.run_step(next(self.batches))
        self.training.finish_steps(is_log_due=False)

    def __call__(self, steps: int) -> None:
        last_step = self.training.step + steps
        while self.training.step < last_step:
            self.training.advance(self.batches)  # by one step, or by one sink

    def describe_ignored_settings(self) -> list[str]:
        """Return a line for each setting without effect: an uncaptured sink, a compile option in eager mode."""
        training, recipe = self.training, self.training.recipe
        lines = [describe_sink(training.sink_obstacle, recipe.sink, training.device), describe_unused_compile(recipe)]
        return [line for line in lines if line]

    def collect_facts(self) -> dict[str, Any]:
        """Return requested and effective settings; `sink_on_device` is valid after the steps have run."""
        training = self.training
        return {
            "mode": training.mode,
            "compile": training.recipe.compile,
            "compiled": training.computation.compilation.outcome,
            "kernels": training.recipe.kernels,
            "own_kernels": training.computation.fused_count,
            "sink": training.recipe.sink,
            "sink_on_device": training.sink is not None and training.sink.replay is not None,
            "sink_obstacle": training.sink_obstacle,
        }

    def close(self) -> None:
        self.training.train_batches.close()
        self.training.validation.close()
