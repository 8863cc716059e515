"""Checkpoints: RUN/checkpoints/step-N/, each complete or absent.

A checkpoint is written into a temporary folder, flushed to the disk and renamed, so a run that is killed at any moment
leaves only complete ones. The checksums in its manifest reveal later damage. Loading reads tensors and plain values,
never pickled code.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from viaduct.atomic_files import LEFTOVERS, NO_ROOM, flush_folder, replace_folder, stage_folder, write_file
from viaduct.data.notices import join_first
from viaduct.devices.base import summarise_error
from viaduct.errors import BadRun, DiskFull, is_out_of_memory
from viaduct.json_records import Damaged, finite_or_null, require_fields, require_type
from viaduct.run_files import MANIFEST, compute_sha256, list_step_folders, read_manifest
from viaduct.training.messages import sendable

MODEL_FILE, STATE_FILE = "model.safetensors", "state.pt"
STATE_FIELDS: dict[str, Any] = {  # fields of STATE_FILE (snapshot.py) that a run needs to resume, and their types
    **dict.fromkeys(("step", "evaluated_at"), int),
    **dict.fromkeys(("optimizer", "scale", "random", "seconds"), dict),
    "best": dict | None,
    "initial_rates": list,
}
EMA_FILE = "ema.safetensors"  # averaged weights, if the recipe has them; evaluations use them


@sendable
@dataclass(frozen=True)
class Snapshot:
    """State of a run after a step: what a checkpoint stores, and what rank 0 sends to the other ranks."""

    model: dict[str, Tensor]  # the network's state dict
    state: dict[str, Any]  # everything but weights, as `snapshot.RunState.read_state` returns it
    averages: dict[str, Tensor] | None = None  # averaged weights; None if the recipe has none


@sendable
@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint of a run on disk, complete or damaged."""

    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step-"))

    @property
    def saved_at(self) -> datetime:
        return datetime.fromtimestamp((self.path / MANIFEST).stat().st_mtime, timezone.utc)

    def read_manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    def find_damage(self) -> str | None:
        """Return what is wrong with the checkpoint; None if its files have the recorded checksums."""
        return self.find_damage_in((MODEL_FILE, STATE_FILE), optional=(EMA_FILE,))

    def find_damage_in(self, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> str | None:
        """Return what is wrong with these files of the checkpoint; None if they have the recorded checksums.

        Files in `optional` are checked if the manifest lists them.
        """
        try:
            files = self.read_manifest()["files"]
        except BadRun as error:
            return error.message.rstrip(".")
        names = (*names, *(name for name in optional if name in files))
        if not set(names) <= set(files):
            return f"{self.path / MANIFEST} does not list all files of the checkpoint"
        for name in names:
            path, size, checksum = self.path / name, files[name]["size"], files[name]["sha256"]
            if not path.is_file():
                return f"{path} is missing"
            if path.stat().st_size != size:
                return f"{path} has {path.stat().st_size:,} bytes, expected {size:,}"
            if compute_sha256(path) != checksum:
                return f"{path} has the right size but not the bytes that were written (checksum)"
        return None

    def read_model(self) -> dict[str, Tensor]:
        return read_tensors(self.path / MODEL_FILE)

    def read_averaged_weights(self) -> dict[str, Tensor]:
        return read_tensors(self.path / EMA_FILE)

    def read_state(self) -> dict[str, Any]:
        """Return everything but weights and averaged weights; raise BadRun if the file is damaged."""
        try:
            state = torch.load(self.path / STATE_FILE, map_location="cpu", weights_only=True)
            require_type(state, dict, "the state")
        except Damaged as error:
            raise BadRun(f"{self.path / STATE_FILE} is damaged: {error}.") from None
        except Exception as error:  # a damaged pickle or archive makes torch.load raise almost anything
            if is_out_of_memory(error) or isinstance(error, OSError):
                raise
            raise BadRun(f"{self.path / STATE_FILE} cannot be loaded: {summarise_error(error)}.") from None
        return dict(state)

    def read_training_state(self) -> dict[str, Any]:
        """Return the state; raise BadRun if a field that a run needs to resume is missing or of another type."""
        state = self.read_state()
        try:
            require_fields(state, STATE_FIELDS)
            require_fields(state["optimizer"], {"state": dict, "param_groups": list}, "optimizer.")
        except Damaged as error:
            raise BadRun(f"{self.path / STATE_FILE} is damaged: {error}.") from None
        return state


def save(folder: Path, step: int, snapshot: Snapshot, notes: dict[str, Any]) -> SavedCheckpoint:
    """Write the checkpoint of a step under `folder`, with `notes` in its manifest; replace an older one of the step."""
    saved = SavedCheckpoint(folder / f"step-{step}")
    pickled = io.BytesIO()
    torch.save(snapshot.state, pickled)
    contents = {MODEL_FILE: save_tensors(copy_to_host(snapshot.model)), STATE_FILE: pickled.getvalue()}
    if snapshot.averages is not None:
        contents[EMA_FILE] = save_tensors(copy_to_host(snapshot.averages))
    files = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()}
    manifest = {"step": step, **notes, "files": files}
    contents[MANIFEST] = json.dumps(finite_or_null(manifest), indent=1).encode()
    try:
        with replace_folder(saved.path) as temporary:
            for name, data in contents.items():
                write_file(temporary / name, data)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise BadRun(f"cannot write the checkpoint {saved.path}: {error.strerror}.") from error
        raise DiskFull(*describe_full_disk(folder, step, sum(map(len, contents.values())))) from None
    return saved


def describe_full_disk(folder: Path, step: int, needed: int) -> tuple[str, str]:
    """Return the message and the hint for a checkpoint of `needed` bytes that does not fit on the disk."""
    free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
    older = ", ".join(saved.path.name for saved in list_checkpoints(folder)) or "none yet"
    message = (
        f"the checkpoint of step {step} does not fit: it needs {needed / 2**20:.1f} MiB, "
        f"{folder} has {free / 2**20:.1f} MiB free."
    )
    return message, f"Older checkpoints are kept ({older}). Free some space and run the same command again."


def copy_to_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def replace_contents(path: Path, data: bytes) -> None:
    """Replace a file atomically; raise DiskFull and leave the old file if the new one cannot be written."""
    try:
        write_file(path, data)
    except OSError as error:
        raise DiskFull(f"cannot write {path}: {error.strerror}.") from None
    flush_folder(path.parent)


def list_checkpoints(folder: Path) -> list[SavedCheckpoint]:
    """Return all checkpoints of a run, oldest first, intact or damaged."""
    return [SavedCheckpoint(path) for path in list_step_folders(folder).values()]


def find_newest_intact(folder: Path) -> tuple[SavedCheckpoint | None, list[str]]:
    """Return the newest intact checkpoint, or None, and what is wrong with each newer one."""
    damaged: list[str] = []
    for saved in reversed(list_checkpoints(folder)):
        damage = saved.find_damage()
        if damage is None:
            return saved, damaged
        damaged.append(damage)
    return None, damaged


def prune(folder: Path, keep: int, best: int | None, newest: int) -> None:
    """Remove all checkpoints up to step `newest` but the last `keep` and that of step `best`."""
    # Checkpoints of later steps are damaged: a run resumes from its newest intact one. They do not count as kept.
    up_to_newest = [saved for saved in list_checkpoints(folder) if saved.step <= newest]
    for saved in up_to_newest[:-keep]:
        if saved.step != best:
            discard(saved)


def discard(saved: SavedCheckpoint) -> None:
    """Rename a checkpoint, then remove it, so that a process killed meanwhile leaves no incomplete one."""
    with stage_folder(saved.path) as trash:
        os.rename(saved.path, trash / saved.path.name)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left half-written or half-removed."""
    leftovers_of_steps = LEFTOVERS.replace("*", "step-*", 1)
    early_versions = (".step-*.tmp", ".step-*.trash")  # patterns of the names that early versions of viaduct used
    for pattern in (leftovers_of_steps, *early_versions):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise BadRun(f"{path} cannot be loaded: {error}") from None


def load_model(model: nn.Module, tensors: dict[str, Tensor], source: Path) -> None:
    """Load stored tensors into a model; raise BadRun, with the missing, extra and misshaped ones, if they do not fit.

    `source` is the checkpoint's path for the message.
    """
    expected = model.state_dict()
    missing = [name for name in expected if name not in tensors]
    extra = sorted(name for name in tensors if name not in expected)
    misshaped = [
        f"{name} is {tuple(tensors[name].shape)}, here {tuple(expected[name].shape)}"
        for name in expected
        if name in tensors and tensors[name].shape != expected[name].shape
    ]
    differences = {"missing there": missing, "not in this model": extra, "of another shape": misshaped}
    if any(differences.values()):
        lines = [f"{title}: {join_first(names)}" for title, names in differences.items() if names]
        raise BadRun(f"{source} is a checkpoint of another model.", *lines)
    model.load_state_dict(tensors)
