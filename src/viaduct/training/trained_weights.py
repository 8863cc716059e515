"""Trained weights to score or export: checkpoints of a run, of TensorFlow or of MindSpore, and files of tensors."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch
from torch import nn

from viaduct.errors import BadData, BadRun, BadValue
from viaduct.recipes import Recipe
from viaduct.run_files import read_recipe_record
from viaduct.training import checkpoint
from viaduct.training.distributed import Group
from viaduct.training.messages import sendable
from viaduct.training.networks import find_changed_model_file
from viaduct.training.rundir import RunDir
from viaduct.training.transfer import refuse_not_finite, select_tensors
from viaduct.weights.importing import AVERAGE_SUFFIX, read_values
from viaduct.weights.locate import INDEX, find_prefix, is_tf_checkpoint, list_prefixes
from viaduct.weights.stored import StoredWeights, open_weights
from viaduct.weights.torch_files import TORCH_SUFFIXES

WEIGHT_SUFFIXES = (".safetensors", ".ckpt", *TORCH_SUFFIXES)  # of files of weights
LAST_NUMBER = re.compile(r"(\d+)(?=\D*$)")  # of a file's name, which usually is a step or an epoch
EPOCH_AND_STEP = re.compile(r"-(\d+)_(\d+)$")  # MindSpore's resnet-90_625.ckpt was saved in epoch 90 after its step 625


@sendable
@dataclass(frozen=True)
class WeightsFile:
    """A TensorFlow checkpoint by its prefix, a MindSpore checkpoint, or a file of tensors."""

    path: Path

    @property
    def saved_at(self) -> datetime:
        """Modification time of the file; of a TensorFlow checkpoint, of its index."""
        index = self.path.with_name(self.path.name + INDEX)
        return datetime.fromtimestamp((index if index.is_file() else self.path).stat().st_mtime, timezone.utc)

    @torch.no_grad()
    def load_into(self, model: nn.Module, ema: bool | None) -> tuple[int | None, list[str]]:
        """Load these weights into a network; return their step, if it is known, and notes for the user.

        `ema` selects the averages of the weights (True) or the weights (False); None selects the averages if a
        TensorFlow checkpoint has them.
        """
        state = model.state_dict()
        with open_weights(self.path, ema=bool(ema)) as stored:
            use_averages = has_averages(stored) if ema is None else ema
            notes = [warning.rstrip(".") for warning in stored.warnings]
            if stored.framework_checkpoint is not None:  # of TensorFlow or MindSpore
                values = read_values(model, stored.framework_checkpoint, ema=use_averages)
                tensors, notes = values.tensors, [*notes, *values.imported.notes]
            elif use_averages and stored.kind != "PyTorch file":  # of a PyTorch file `open_weights` opens the averages
                raise BadValue(f"{self.path} holds one set of weights, no averages beside them.", "Leave out --ema.")
            else:
                shapes = {name: tuple(value.shape) for name, value in state.items()}
                names, selection_notes = select_tensors(stored, shapes, excluded=set())
                tensors, notes = {name: stored.read(name) for name in names}, [*notes, *selection_notes]
            if use_averages:
                notes.append("the moving averages of the weights are used (--no-ema: the weights themselves)")
            for name, value in tensors.items():
                state[name].copy_(value)
            return stored.metadata.step, notes


def has_averages(stored: StoredWeights) -> bool:
    """Return True for a TensorFlow checkpoint that also has moving averages of the weights."""
    has_average = any(name.endswith(AVERAGE_SUFFIX) for name in stored.tensor_infos)
    return stored.framework_checkpoint is not None and has_average


def find_weights(path: Path, every: bool) -> list[WeightsFile]:
    """Return the checkpoint or file at a path; with `every` those in the folder at the path, in the order of steps."""
    if not every:
        return [WeightsFile(find_prefix(path) if is_tf_checkpoint(path) else check_file(path))]
    if not path.is_dir():
        raise BadValue(f"--all: {path} is not a folder.", "Leave out --all, or name the folder that holds them.")
    paths = list_prefixes(path) or [file for file in path.iterdir() if file.suffix in WEIGHT_SUFFIXES]
    if not paths:
        suffixes = ", ".join(WEIGHT_SUFFIXES)
        raise BadData(f"{path} holds no weights: no .index of a TensorFlow checkpoint, no {suffixes}.")
    return [WeightsFile(path) for path in sorted(paths, key=extract_order)]


def check_file(path: Path) -> Path:
    """Return the path if there are weights at it; raise BadData otherwise, also for a folder with files of weights."""
    if path.is_dir():
        files = sorted(file.name for file in path.iterdir() if file.suffix in WEIGHT_SUFFIXES)
        if files:
            raise BadData(
                f"{path} is a folder with files of weights: {len(files):,}.", f"Name one ({files[0]}), or give --all."
            )
    with open_weights(path):
        return path


def extract_order(path: Path) -> tuple[int, int, str]:
    """Return a file's sort key: (epoch, step, name) for MindSpore's names, else (last number in the name, 0, name)."""
    name = path.name.removesuffix(path.suffix) if path.suffix in WEIGHT_SUFFIXES else path.name
    if path.suffix == ".ckpt" and (match := EPOCH_AND_STEP.search(name)):
        return (int(match[1]), int(match[2]), path.name)
    match = LAST_NUMBER.search(name)
    return (int(match[1]) if match else -1, 0, path.name)


Weights = checkpoint.SavedCheckpoint | WeightsFile


def choose_weights(run: RunDir, recipe: Recipe, step: int | None, every: bool) -> list[Weights]:
    """Return the checkpoint of a step, or `every` one with undamaged weights, oldest first, or the newest of these.

    If the run has no checkpoints and no step is given, return its final weights. Notes about damaged checkpoints go to
    stderr.
    """
    saved_checkpoints = checkpoint.list_checkpoints(run.checkpoints)
    used = checkpoint.EMA_FILE if recipe.ema else checkpoint.MODEL_FILE
    if not saved_checkpoints and step is None and (run.path / used).is_file():
        return [WeightsFile(run.path / used)]
    if not saved_checkpoints:
        raise BadRun(f"{str(run.path)!r} has no checkpoint.", "It has not saved one yet, or they were removed.")
    if step is not None:
        return [choose_step(run, used, step, saved_checkpoints)]
    usable: list[Weights]
    if every:
        usable = [saved for saved in saved_checkpoints if is_usable(saved, used)]
    else:
        newest = next((saved for saved in reversed(saved_checkpoints) if is_usable(saved, used)), None)
        usable = [] if newest is None else [newest]
        if newest is not None and newest != saved_checkpoints[-1]:
            print(f"Using the checkpoint of step {newest.step} instead.", file=sys.stderr)
    if not usable:
        raise BadRun(f"no checkpoint with undamaged weights is left in {run.checkpoints}.")
    return usable


def choose_step(
    run: RunDir, used: str, step: int, saved_checkpoints: list[checkpoint.SavedCheckpoint]
) -> checkpoint.SavedCheckpoint:
    """Return the checkpoint of a step; raise BadRun if it is missing, or if its file `used` of weights is damaged."""
    saved = next((saved for saved in saved_checkpoints if saved.step == step), None)
    if saved is None:
        steps = ", ".join(str(saved.step) for saved in saved_checkpoints)
        raise BadRun(f"{str(run.path)!r} has no checkpoint of step {step}.", f"There are: {steps}.")
    damage = saved.find_damage_in((used,))
    if damage is None:
        print_damaged_state(saved, used)
        return saved
    others = [str(other.step) for other in saved_checkpoints if other != saved and not other.find_damage_in((used,))]
    hint = f"The checkpoints of steps {', '.join(others)} are undamaged." if others else "No other one is undamaged."
    raise BadRun(f"the checkpoint of step {step} is damaged: {damage}.", hint)


def is_usable(saved: checkpoint.SavedCheckpoint, used: str) -> bool:
    """Return True if the file `used` of weights is undamaged; print damage on stderr."""
    damage = saved.find_damage_in((used,))
    if damage is None:
        print_damaged_state(saved, used)
    else:
        print(f"Skipping a damaged checkpoint: {damage}.", file=sys.stderr)
    return damage is None


def print_damaged_state(saved: checkpoint.SavedCheckpoint, used: str) -> None:
    """Print a note on stderr if another file of the checkpoint than `used` is damaged."""
    if (damage := saved.find_damage()) is not None:
        cannot = f"Training cannot continue from step {saved.step}"
        print(f"{damage}. {cannot}; {used} is undamaged and is used.", file=sys.stderr)


def load_weights(
    saved: Weights, recipe: Recipe, model: nn.Module, group: Group, ema: bool | None
) -> tuple[int | None, float | None]:
    """Load weights into the network; return their step and epoch, None where not known. Notes go to stderr.

    `ema` is that of `WeightsFile.load_into`. Of a run's checkpoint the averages are loaded if the recipe has them.
    """
    if isinstance(saved, WeightsFile):
        step, notes = saved.load_into(model, ema)
        for note in notes if group.is_rank_zero else []:
            print(f"{saved.path}: {note}.", file=sys.stderr)
        refuse_not_finite(model.state_dict(), saved.path)
        return step, None
    run = next((folder for folder in (saved.path, *saved.path.parents) if (folder / "recipe.json").is_file()), None)
    if group.is_rank_zero and run is not None and (changed := find_changed_model_file(read_recipe_record(run), recipe)):
        note = f"Note: {changed} has changed since this run was begun: its network may compute something else."
        print(note, file=sys.stderr)
    checkpoint.load_model(model, saved.read_averaged_weights() if recipe.ema else saved.read_model(), saved.path)
    refuse_not_finite(model.state_dict(), saved.path)
    return saved.step, saved.read_manifest().get("epoch")
