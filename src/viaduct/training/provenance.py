"""Origin of a run: code, machine, data and first weights, recorded in RUN/recipe.json.

    "provenance": {
      "id": "6f1d…"                 identifies the run even if its directory is moved
      "init": {…} or null           the file of the first weights, its SHA-256, and the run that the file belongs to
      "sessions": [{…}, …]          one for each start of the run: time, place, code and data
    }

A run that an early version of viaduct has begun without this record gets it when it is resumed, but without "init".
Unknown values are null. The "basis" of a data fingerprint says which part of the data was read for it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from viaduct import __version__
from viaduct.data.source import Dataset
from viaduct.data.synthetic import SyntheticSet
from viaduct.errors import BadRun
from viaduct.json_records import Damaged, parse_object
from viaduct.repository import UnreadableRepository, open_repository
from viaduct.run_files import compute_sha256, read_recipe_record

PACKAGE = Path(__file__).parents[1]
# Packages whose source decides what a run computes, together with viaduct's top-level modules.
TRAINING_CODE = ("training", "data", "models", "kernels", "devices", "recipes", "weights")
SUFFIXES = (".py", ".c", ".h", ".cu", ".json")
MAX_SESSIONS = 32  # that are recorded: the first and the latest
MAX_PIXEL_BYTES = 512 << 20  # images in memory that are larger than this are fingerprinted by a sample
MAX_BUILD_BYTES = 1 << 20  # a larger build.json is not read


def describe_provenance(
    earlier: Mapping[str, Any] | None, session: dict[str, Any], init: dict[str, Any] | None, resumed: bool
) -> dict[str, Any]:
    """Return the record of a new run, or the earlier record of a resumed run with this session added.

    If there are more than MAX_SESSIONS sessions, the first and the latest are kept.
    """
    if not resumed:
        return {"id": uuid.uuid4().hex, "init": init, "sessions": [session]}
    if not earlier:  # begun by a version without this record
        return {"id": uuid.uuid4().hex, "sessions": [session]}
    recorded = earlier.get("sessions")
    sessions = [*(recorded if isinstance(recorded, list) else []), session]
    return {**earlier, "sessions": [*sessions[:1], *sessions[1:][-MAX_SESSIONS + 1 :]]}


def describe_session(
    step: int, ranks: int, machine: Mapping[str, Any], commit: str, images: Dataset, data: Path | None
) -> dict[str, Any]:
    """Return the record of one start of a run: time, process, code, machine, data."""
    return {
        "began": time.time(),
        "step": step,
        "host": platform.node(),
        "pid": os.getpid(),
        "version": __version__,
        "commit": commit,
        "modified_files": count_modified_files(),
        "source": hash_sources(),
        "machine": dict(machine),
        "ranks": ranks,
        "data": fingerprint_data(images, data),
    }


# Code


def list_sources() -> list[Path]:
    """Return the files of the packages in TRAINING_CODE and viaduct's top-level modules, in a fixed order."""
    folders = [PACKAGE / name for name in TRAINING_CODE]
    sources = [path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES]
    return sorted([*sources, *PACKAGE.glob("*.py")])


def hash_sources() -> str | None:
    """Return a digest of the files of `list_sources`; None if one cannot be read."""
    digest = hashlib.sha256()
    try:
        for path in list_sources():
            digest.update(f"{path.relative_to(PACKAGE)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()[:16]


def count_modified_files() -> int | None:
    """Return how many files of `list_sources` differ from git's index; None if there is no readable repository."""
    top = PACKAGE.parents[1]
    try:
        index = open_repository(top).index
    except (UnreadableRepository, OSError):
        return None
    return sum(not index.has_content_of(path.relative_to(top).as_posix(), path) for path in list_sources())


# Data


def fingerprint_data(images: Dataset, data: Path | None) -> dict[str, Any]:
    """Return a digest of the data, what it was computed from ("basis"), and how the records were built."""
    if isinstance(images, SyntheticSet):
        return {"fingerprint": "synthetic", "basis": "noise", "build": None}
    splits = {"training": images.train, "validation": images.validation}
    digest, bases = hashlib.sha256(), set()
    for name, split in splits.items():
        digest.update(f"{name}\0{len(split)}\0".encode() + split.labels.tobytes())
        bases.add(update_with_images(digest, split))
    basis = "; ".join(sorted(bases))
    return {"fingerprint": digest.hexdigest()[:32], "basis": f"{basis}; all labels", "build": read_build(data)}


def update_with_images(digest: Any, split: Any) -> str:
    """Add what can be read cheaply of a split's images to a digest; return what was read, in words."""
    stored = getattr(split, "images", None)
    if stored is not None:
        return update_with_pixels(digest, stored)
    folder = getattr(split, "folder", None)
    if images := getattr(folder, "images", None):
        for image in images:
            digest.update(f"{image.name}\0{image.size}\n".encode("utf-8", "surrogateescape"))
        return "names and sizes of image files"
    files = [Path(getattr(file, "path", file)) for file in getattr(folder, "files", ())]
    for path in files:
        try:
            size = str(path.stat().st_size)
        except OSError:
            size = "unreadable"
        digest.update(f"{path.name}\0{size}\n".encode("utf-8", "surrogateescape"))
    return "names and sizes of record files" if files else "number of images"


def update_with_pixels(digest: Any, stored: Any) -> str:
    """Add the pixels of images in memory to a digest, of large arrays only some blocks; return which, in words."""
    stride = max(1, -(-int(stored.nbytes) // MAX_PIXEL_BYTES))
    digest.update(f"{stored.shape}".encode())
    chunk = max(1, (16 << 20) // max(1, int(stored[0].nbytes) if len(stored) else 1))  # images of a block of 16 MiB
    for start in range(0, len(stored), chunk * stride):
        digest.update(stored[start : start + chunk].tobytes())
    return "every pixel" if stride == 1 else f"pixels of one in {stride} blocks of images"


def read_build(data: Path | None) -> dict[str, Any] | None:
    """Return how `viaduct data build` made the records, from its build.json; None without a readable one."""
    file = None if data is None else data / "build.json"
    try:
        if file is None or file.stat().st_size > MAX_BUILD_BYTES:
            return None
        record = parse_object(file.read_bytes())
    except (OSError, Damaged):
        return None
    return {name: record[name] for name in ("source", "options") if isinstance(record.get(name), dict)}


# First weights


def describe_init(source: str) -> dict[str, Any] | None:
    """Return the file of a run's first weights, its SHA-256, and the run that it belongs to.

    `source` is the recipe's `init.source`; return None if it is empty.
    """
    if not source:
        return None
    from viaduct.weights.stored import open_weights

    with open_weights(Path(source)) as stored:
        file = stored.path
        if not file.is_file():  # a TensorFlow checkpoint: take its index, which has the checksums of all tensors
            file = Path(f"{file}.index")
        facts = {"kind": stored.kind, "step": stored.metadata.step}
    record = {"source": source, "file": str(file.absolute()), **facts, "sha256": None, "bytes": None}
    with suppress(OSError):
        record |= {"bytes": file.stat().st_size, "sha256": compute_sha256(file)}
    return record | describe_run_of_file(file)


def describe_run_of_file(file: Path) -> dict[str, Any]:
    """Return path and id of the run that a file of weights belongs to; both are None if it belongs to none.

    The file may be in the run's directory itself, or in its checkpoints/step-N.
    """
    for folder in (file.parent, file.parent.parent.parent):
        if (folder / "recipe.json").is_file():
            try:
                provenance = read_recipe_record(folder).get("provenance") or {}
            except (BadRun, OSError):
                provenance = {}
            return {"run": str(folder.absolute()), "run_id": provenance.get("id")}
    return {"run": None, "run_id": None}
