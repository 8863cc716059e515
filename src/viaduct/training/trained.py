"""Trained weights that can be scored or handed over: checkpoints of a run, or files from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from torch import nn

from viaduct.errors import BadRun
from viaduct.recipes import Recipe
from viaduct.training import checkpoint
from viaduct.training.distributed import Group
from viaduct.training.foreign import WeightsFile
from viaduct.training.rundir import RunDir

Weights = checkpoint.Saved | WeightsFile


def choose_weights(run: RunDir, recipe: Recipe, step: int | None, every: bool) -> list[Weights]:
    """Return checkpoints of a run as `choose_checkpoints` does, or its final weights where it keeps none."""
    final = run.path / ("ema.safetensors" if recipe.ema else "model.safetensors")
    if step is None and not checkpoint.checkpoints(run.checkpoints) and final.is_file():
        return [WeightsFile(final)]
    return list(choose_checkpoints(run, step, every))


def choose_checkpoints(run: RunDir, step: int | None, every: bool) -> list[checkpoint.Saved]:
    """Return the newest undamaged checkpoint of a run, the one of a step, or all of them, oldest first."""
    found = checkpoint.checkpoints(run.checkpoints)
    if not found:
        raise BadRun(f"{str(run.path)!r} has no checkpoint.", "It has not saved one yet, or they were removed.")
    if step is not None:
        matching = [saved for saved in found if saved.step == step]
        if not matching:
            there = ", ".join(str(saved.step) for saved in found)
            raise BadRun(f"{str(run.path)!r} has no checkpoint of step {step}.", f"There are: {there}.")
        found = matching
    whole = list(skip_damaged(found if every or step is not None else newest_undamaged(found)))
    if not whole:
        raise BadRun(f"no whole checkpoint is left in {run.checkpoints}.")
    return whole


def newest_undamaged(found: list[checkpoint.Saved]) -> list[checkpoint.Saved]:
    """Return the newest undamaged checkpoint and the damaged ones after it."""
    for position in range(len(found) - 1, -1, -1):
        if found[position].damage() is None:
            return found[position:]
    return found


def skip_damaged(found: list[checkpoint.Saved]) -> Iterator[checkpoint.Saved]:
    """Yield the checkpoints that can be read; say on stderr which cannot."""
    for saved in found:
        damage = saved.damage()
        if damage is None:
            yield saved
        else:
            print(f"Skipping a damaged checkpoint: {damage}.", file=sys.stderr)


def load_weights(
    saved: Weights, recipe: Recipe, model: nn.Module, group: Group, ema: bool | None
) -> tuple[int | None, float | None]:
    """Give the network the weights that are scored next; return their step and epoch, where known."""
    if isinstance(saved, WeightsFile):
        step, notes = saved.put_into(model, ema)
        for note in notes if group.first else []:
            print(f"{saved.path}: {note}.", file=sys.stderr)
        return step, None
    checkpoint.load_model(model, saved.ema() if recipe.ema else saved.model(), saved.path)
    return saved.step, saved.manifest().get("epoch", 0.0)
