"""Trained weights that can be scored or handed over: checkpoints of a run, or files from elsewhere."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from torch import nn

from viaduct.errors import BadRun
from viaduct.recipes import Recipe
from viaduct.run_files import read_recipe_record
from viaduct.training import checkpoint
from viaduct.training.distributed import Group
from viaduct.training.networks import changed_model_file
from viaduct.training.rundir import RunDir
from viaduct.training.transfer import refuse_not_finite
from viaduct.training.weight_files import WeightsFile

Weights = checkpoint.Saved | WeightsFile


def choose_weights(run: RunDir, recipe: Recipe, step: int | None, every: bool) -> list[Weights]:
    """Return checkpoints of a run as `choose_checkpoints` does, or its final weights where it keeps none."""
    final = run.path / ("ema.safetensors" if recipe.ema else "model.safetensors")
    if step is None and not checkpoint.checkpoints(run.checkpoints) and final.is_file():
        return [WeightsFile(final)]
    return list(choose_checkpoints(run, recipe, step, every))


def choose_checkpoints(run: RunDir, recipe: Recipe, step: int | None, every: bool) -> list[checkpoint.Saved]:
    """Return the newest checkpoint of a run whose weights are undamaged, the one of a step, or all, oldest first.

    Which are damaged, and which is used instead, goes to stderr.
    """
    found = checkpoint.checkpoints(run.checkpoints)
    if not found:
        raise BadRun(f"{str(run.path)!r} has no checkpoint.", "It has not saved one yet, or they were removed.")
    if step is not None:
        return [choose_step(run, recipe, step, found)]
    if every:
        usable = [saved for saved in found if is_usable(saved, recipe)]
    else:
        usable = list(islice((saved for saved in reversed(found) if is_usable(saved, recipe)), 1))
        if usable and usable[0] != found[-1]:
            print(f"Using the checkpoint of step {usable[0].step} instead.", file=sys.stderr)
    if not usable:
        raise BadRun(f"no checkpoint with undamaged weights is left in {run.checkpoints}.")
    return usable


def choose_step(run: RunDir, recipe: Recipe, step: int, found: list[checkpoint.Saved]) -> checkpoint.Saved:
    """Return the checkpoint of a step; BadRun, with those that can be used, if it is missing or damaged."""
    matching = [saved for saved in found if saved.step == step]
    if not matching:
        there = ", ".join(str(saved.step) for saved in found)
        raise BadRun(f"{str(run.path)!r} has no checkpoint of step {step}.", f"There are: {there}.")
    damage = find_damage(matching[0], recipe)
    if damage is None:
        mention_damaged_state(matching[0], checkpoint.EMA if recipe.ema else checkpoint.MODEL)
        return matching[0]
    others = [str(saved.step) for saved in found if saved != matching[0] and find_damage(saved, recipe) is None]
    hint = f"Undamaged are those of the steps {', '.join(others)}." if others else "No other one is undamaged."
    raise BadRun(f"the checkpoint of step {step} is damaged: {damage}.", hint)


def is_usable(saved: checkpoint.Saved, recipe: Recipe) -> bool:
    """Return True if the weights can be read; say on stderr what is damaged."""
    damage = find_damage(saved, recipe)
    if damage is None:
        mention_damaged_state(saved, checkpoint.EMA if recipe.ema else checkpoint.MODEL)
    else:
        print(f"Skipping a damaged checkpoint: {damage}.", file=sys.stderr)
    return damage is None


def find_damage(saved: checkpoint.Saved, recipe: Recipe) -> str | None:
    """Return what is wrong with the weights that are scored or handed over; None if they are as they were written."""
    return saved.damage_of((checkpoint.EMA if recipe.ema else checkpoint.MODEL,))


def mention_damaged_state(saved: checkpoint.Saved, used: str) -> None:
    """Say on stderr if a checkpoint is damaged in another file than the one whose weights are used."""
    damage = saved.damage()
    if damage is not None:
        print(
            f"{damage}. Training cannot continue from step {saved.step}; {used} is undamaged and is used.",
            file=sys.stderr,
        )


def load_weights(
    saved: Weights, recipe: Recipe, model: nn.Module, group: Group, ema: bool | None
) -> tuple[int | None, float | None]:
    """Give the network the weights that are scored next; return their step and epoch, where known."""
    if isinstance(saved, WeightsFile):
        step, notes = saved.put_into(model, ema)
        for note in notes if group.first else []:
            print(f"{saved.path}: {note}.", file=sys.stderr)
        refuse_not_finite(model.state_dict(), saved.path)
        return step, None
    if group.first and (changed := find_changed_model_file(saved.path, recipe)):
        print(
            f"Note: {changed} has changed since this run was begun: its network may compute something else.",
            file=sys.stderr,
        )
    checkpoint.load_model(model, saved.ema() if recipe.ema else saved.model(), saved.path)
    refuse_not_finite(model.state_dict(), saved.path)
    return saved.step, saved.manifest().get("epoch", 0.0)


def find_changed_model_file(path: Path, recipe: Recipe) -> Path | None:
    """Return the file of the network's function if it is not the one that the run above this path was begun with."""
    run = next((folder for folder in (path, *path.parents) if (folder / "recipe.json").is_file()), None)
    return None if run is None else changed_model_file(read_recipe_record(run), recipe)
