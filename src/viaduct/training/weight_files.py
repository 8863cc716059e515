"""Weights that no run of ours has trained, put into a recipe's network: checkpoints and files from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch
from torch import Tensor, nn

from viaduct.errors import BadData, BadValue
from viaduct.training.messages import sendable
from viaduct.training.transfer import fitting
from viaduct.weights.bundle import Bundle
from viaduct.weights.importing import SHADOW, read_values
from viaduct.weights.locate import INDEX, find_prefix, is_tf_checkpoint, prefixes
from viaduct.weights.mindspore import MindsporeNames
from viaduct.weights.stored import Stored, open_weights
from viaduct.weights.torch_files import ENDINGS

FILES = (".safetensors", ".ckpt", *ENDINGS)
NUMBER = re.compile(r"(\d+)(?=\D*$)")
EPOCH = re.compile(r"-(\d+)_(\d+)$")  # MindSpore's resnet-90_625.ckpt: epoch 90, step 625 of it


@sendable
@dataclass(frozen=True)
class WeightsFile:
    """A TensorFlow checkpoint by its prefix, a MindSpore checkpoint, or a file of tensors."""

    path: Path

    @property
    def saved_at(self) -> datetime:
        """When it was written, by its file's time."""
        index = self.path.with_name(self.path.name + INDEX)
        return datetime.fromtimestamp((index if index.is_file() else self.path).stat().st_mtime, timezone.utc)

    def put_into(self, model: nn.Module, ema: bool | None) -> tuple[int | None, list[str]]:
        """Give a network these weights; return their step, where it is known, and what a person should know.

        `ema` takes averages of the weights, which must be there; None takes them where they are.
        """
        with open_weights(self.path, ema=bool(ema)) as stored:
            of_torch = stored.kind == "PyTorch file"
            averaged = has_averages(stored) if ema is None else ema
            notes = [warning.rstrip(".") for warning in stored.warnings]
            if isinstance(stored.reader, Bundle | MindsporeNames):
                values = read_values(model, stored.reader, ema=averaged)
                tensors, notes = values.tensors, [*notes, *values.done.notes]
            elif averaged and not of_torch:
                raise BadValue(f"{self.path} holds one set of weights, no averages beside them.", "Leave out --ema.")
            else:
                names, more = fitting(stored, shapes_of(model), set())
                tensors, notes = {name: stored.read(name) for name in names}, [*notes, *more]
            if averaged:
                notes.append("the moving averages of the weights are measured (--no-ema: the weights themselves)")
            copy_into(model, tensors)
            return stored.facts.step, notes


def has_averages(stored: Stored) -> bool:
    """Return True if moving averages stand beside the weights."""
    return any(name.endswith(SHADOW) for name in stored.infos)


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def copy_into(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    own = model.state_dict()
    with torch.no_grad():
        for name, value in tensors.items():
            own[name].copy_(value)


def find_weights(path: Path, every: bool) -> list[WeightsFile]:
    """Return what a path means: one checkpoint or file, or with `every` all those of a folder, by their steps."""
    if not every:
        return [WeightsFile(find_prefix(path) if is_tf_checkpoint(path) else check_file(path))]
    if not path.is_dir():
        raise BadValue(f"--all: {path} is not a folder.", "Leave out --all, or name the folder that holds them.")
    found = prefixes(path) or [file for file in path.iterdir() if file.suffix in FILES]
    if not found:
        raise BadData(f"{path} holds no weights: no .index of a TensorFlow checkpoint, no {', '.join(FILES)}.")
    return [WeightsFile(path) for path in sorted(found, key=extract_order)]


def check_file(path: Path) -> Path:
    """Refuse a folder of which nobody can say which weights are meant, and what is not there."""
    if path.is_dir():
        files = sorted(file.name for file in path.iterdir() if file.suffix in FILES)
        if files:
            raise BadData(f"{path} holds {len(files):,} files of weights.", f"Name one ({files[0]}), or give --all.")
    with open_weights(path):
        return path


def extract_order(path: Path) -> tuple[int, int, str]:
    """Return the sort key of a file: the last number in its name, for MindSpore epoch and step."""
    name = path.name.removesuffix(path.suffix) if path.suffix in FILES else path.name
    if path.suffix == ".ckpt" and (match := EPOCH.search(name)):
        return (int(match[1]), int(match[2]), path.name)
    match = NUMBER.search(name)
    return (int(match[1]) if match else -1, 0, path.name)
