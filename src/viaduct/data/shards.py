"""The files of a split and the names of its classes: train-00000-of-01024, validation-00000-of-00128, labels.txt."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from viaduct.data.notices import describe_error, join_first
from viaduct.errors import BadData

Split = Literal["train", "validation"]

SPLITS: tuple[Split, Split] = ("train", "validation")
LABELS_FILE = "labels.txt"


def list_record_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a split in order, from FOLDER or FOLDER/SPLIT; empty if there are none.

    Raise `BadData` if there is no such folder, if a file of the set is missing, or if there are several sets.
    """
    if not folder.is_dir():
        raise BadData(f"{folder}: there is no such folder.", "Give the folder that holds train-00000-of-…")
    for candidate in (folder, folder / split):
        sets = find_shard_sets(candidate, split) if candidate.is_dir() else {}
        if sets:
            return require_single_set(candidate, split, sets)
    return []


def find_shard_sets(folder: Path, split: str) -> dict[int, dict[int, Path]]:
    """Return the sets of a split's files in a folder, such that [16][3] is `train-00003-of-00016`."""
    pattern = re.compile(rf"{re.escape(split)}-(\d{{5}})-of-(\d{{5}})")
    sets: dict[int, dict[int, Path]] = {}
    for entry in os.scandir(folder):
        match = pattern.fullmatch(entry.name)
        if match and entry.is_file():
            sets.setdefault(int(match[2]), {})[int(match[1])] = folder / entry.name
    return sets


def require_single_set(folder: Path, split: str, sets: dict[int, dict[int, Path]]) -> list[Path]:
    """Return the files of a split's only set; raise `BadData` if there are several sets, or files are missing."""
    if len(sets) > 1:
        sizes = " and ".join(f"of {total}" for total in sorted(sets))
        raise BadData(f"{folder}: there are {len(sets)} sets of {split} files, {sizes}.", "Keep one of them here.")
    ((total, files),) = sets.items()
    missing = [format_shard_name(split, number, total) for number in range(total) if number not in files]
    if missing:
        raise BadData(
            f"{folder}: {len(missing):,} of the {total:,} {split} files are missing: {join_first(missing)}.",
            "Copy them again; or run the same build again, which writes the missing files.",
        )
    return [files[number] for number in sorted(files)]


def format_shard_name(split: str, number: int, total: int) -> str:
    return f"{split}-{number:05d}-of-{total:05d}"


def read_label_names(folder: Path) -> dict[int, str]:
    """Return the class name of each label, from labels.txt in the folder; empty if there is none.

    "7:tabby cat" is the name of label 7, as `data build` and TF-Slim write it. In a file without numbers the first line
    is label 1, as in ImageNet's records, or label 0 if it is "background".
    """
    file = folder / LABELS_FILE
    if not file.is_file():
        return {}
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{file}: could not be read: {describe_error(error)}.") from error
    while lines and not lines[-1]:
        lines.pop()
    return parse_label_names(lines) if lines else {}


def parse_label_names(lines: list[str]) -> dict[int, str]:
    """Return the class name of each label, from lines in one of the two forms that `read_label_names` describes."""
    numbered = [re.fullmatch(r"(\d{1,18}):\s*(.*)", line) for line in lines]
    if all(numbered):
        return {int(match[1]): match[2] for match in numbered if match}
    first = 0 if lines[0].lower() == "background" else 1
    return dict(enumerate(lines, start=first))


def explain_nothing_found(folder: Path, split: str) -> BadData:
    """Return the error for a folder without files of a split."""
    present = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if split == "validation" and any(name.startswith("train") for name in present):
        build = "`viaduct data build … --validation-share 0.1`"
        advice = f"Training needs them: build again, into another folder, with {build}."
    elif any("mindrecord" in name for name in present):
        advice = "It has MindRecord files: training reads them; `viaduct data build` makes TFRecords of them."
    else:
        advice = "`viaduct data build` makes records from class folders."
    found = f"Expected {split}-00000-of-… ; it has: {join_first(present, 12) or 'nothing'}."
    return BadData(f"{folder}: there are no {split} records.", found, advice)
