"""Reads what `viaduct train --dump-steps`, `viaduct dump` and `Dump` write.

Takes the dump's folder, a run with `dump/` in it, one step's folder or one rank's. All steps and ranks that are there
become one side. A step whose index is damaged is a tensor with a fault, and the others are read.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

from viaduct.comparison.index import FILE, FORMAT, Entry, Index, read_index
from viaduct.comparison.naming import RANK, STEP, is_plain_file_name
from viaduct.comparison.tensors import Role, Side, Stored
from viaduct.errors import BadData

KIND = "viaduct"
ROLES: Mapping[str, Role] = {role: role for role in get_args(Role)}
CHUNK = 1 << 20


def recognise(path: Path) -> bool:
    """Return True if the folder is or holds a dump of viaduct, by names and the first bytes of an index.

    In a step's or rank's folder whatever has that name counts: a damaged dump must not pass for a plain folder.
    """
    found = next(indexes(path), None)
    if found is None:
        return False
    try:
        with found.open("rb") as file:
            start = file.read(200)
            return FORMAT.encode() in start or not start.strip(b"\0 \n") or bool(identify_index(found)[2])
    except OSError:
        return True  # it looks like one, and reading it will say what is wrong


def indexes(path: Path) -> Iterator[Path]:
    """Yield the indexes at or below a dump, a run, a step or a rank, by step and rank."""
    if (path / FILE).is_file():
        yield path / FILE
        return
    ranks = numbered_folders(path, RANK)
    steps = numbered_folders(path, STEP)
    if ranks or steps:
        for folder in ranks or steps:
            yield from indexes_of_step(folder)
    elif (path / "dump").is_dir():
        for folder in numbered_folders(path / "dump", STEP):
            yield from indexes_of_step(folder)


def indexes_of_step(folder: Path) -> Iterator[Path]:
    """Yield the indexes of one step's ranks."""
    inner = [folder] if (folder / FILE).is_file() else numbered_folders(folder, RANK)
    yield from (rank_folder / FILE for rank_folder in inner or [folder])


def numbered_folders(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the folders that match, in order of their numbers."""
    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_dir()]
    except OSError:
        return []
    found = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [path / name for _, name in sorted(found)]


def read(path: Path, verify: bool = False) -> Side:
    """Read all steps and ranks; with `verify` every file's checksum is checked."""
    found, notes, damaged = [], [], []
    for index_path in indexes(path):
        try:
            found.append((index_path.parent, read_index(index_path)))
        except BadData as error:
            notes.append(" ".join((f"left out: {error.what}", *error.hints)))
            damaged.append(make_unreadable(index_path, error.what))
    if not found:
        raise BadData(f"{str(path)!r} holds no dump that can be read.", *(notes or explain_missing(path)))
    tensors = [tensor for folder, index in found for tensor in stored_tensors(folder, index, verify)]
    tensors += damaged
    notes += differing_settings([index for _, index in found])
    return Side(path, KIND, tuple(tensors), joined_edges(found), tuple(notes), settings_of(found[0][1], tensors))


def identify_index(index: Path) -> tuple[int, int, str]:
    """Return step and rank of an index from its folders, and the folders' names."""
    step, rank, names = 0, 0, []
    for name in index.absolute().parts[-3:-1]:
        if match := STEP.fullmatch(name):
            step = int(match[1])
        elif match := RANK.fullmatch(name):
            rank = int(match[1])
        else:
            continue
        names.append(name)
    return step, rank, "/".join(names)


def make_unreadable(index: Path, why: str) -> Stored:
    """Return a faulty tensor that stands for a whole step that cannot be read."""
    step, rank, _ = identify_index(index)
    return Stored(FILE, "", "output", 0, 0, step, rank, "", (), None, fault=why)


def explain_missing(path: Path) -> list[str]:
    """Return hints where no index was found."""
    if not path.exists():
        return ["There is no such folder."]
    return [f"Looked for {FILE}, step_000000/{FILE} and dump/step_000000/{FILE}."]


def stored_tensors(folder: Path, index: Index, verify: bool) -> Iterator[Stored]:
    """Yield the tensors of one index."""
    present = sizes_in(folder)
    sound: dict[str, str] = {}
    for entry in index.entries:
        fault = entry.fault or find_fault(entry, present)
        if verify and not fault and entry.file is not None:
            if entry.file not in sound:
                sound[entry.file] = check_damage(folder / entry.file, entry)
            fault = sound[entry.file]
        yield to_stored(folder, index, entry, fault)


def sizes_in(folder: Path) -> dict[str, int]:
    """Return the sizes of the plain files in a folder; links are ignored."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}


def find_fault(entry: Entry, present: Mapping[str, int]) -> str:
    """Return why an entry's file cannot be used; empty if it can."""
    if entry.role not in ROLES:
        return f"the index gives it the unknown role {entry.role!r}"
    if entry.file is None:
        return "" if entry.statistics else "the index names neither a file nor statistics"
    if not is_plain_file_name(entry.file):
        return f"the index names {entry.file!r}, which lies outside its folder"
    if entry.file not in present:
        return f"{entry.file} is missing"
    if present[entry.file] != entry.bytes:
        return f"{entry.file} has {present[entry.file]:,} bytes; {entry.bytes:,} were written"
    return ""


def check_damage(path: Path, entry: Entry) -> str:
    """Return how a file differs from its checksum; empty if it does not."""
    found = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                found = zlib.crc32(chunk, found)
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    return "" if found == entry.crc32 else f"{path.name} is damaged: its checksum is {found}, not {entry.crc32}"


def to_stored(folder: Path, index: Index, entry: Entry, fault: str) -> Stored:
    return Stored(
        op=entry.op,
        op_type=entry.type,
        role=ROLES.get(entry.role, "output"),
        index=entry.index,
        order=entry.order,
        step=index.step,
        rank=index.rank,
        dtype=entry.dtype,
        shape=entry.shape,
        path=folder / entry.file if entry.file is not None and is_plain_file_name(entry.file) else None,
        call=entry.call,
        statistics=entry.statistics or None,
        fault=fault,
        parameter=entry.parameter,
        crc32=entry.crc32,
    )


def joined_edges(found: list[tuple[Path, Index]]) -> dict[str, tuple[str, ...]]:
    edges: dict[str, dict[str, None]] = {}
    for _, index in found:
        for op, feeders in index.edges.items():
            edges.setdefault(op, {}).update(dict.fromkeys(feeders))
    return {op: tuple(feeders) for op, feeders in edges.items()}


def settings_of(first: Index, tensors: list[Stored]) -> dict[str, str]:
    steps = sorted({tensor.step for tensor in tensors})
    return {**first.settings, "steps": ", ".join(str(step) for step in steps), "ranks": str(first.ranks)}


def differing_settings(found: list[Index]) -> list[str]:
    """Return a note if two steps of one folder have different settings: one may be left over from another run."""
    first = found[0]
    for other in found[1:]:
        names = sorted(name for name in {*first.settings, *other.settings} if has_changed(first, other, name))
        if names:
            which = ", ".join(f"{name} {first.settings.get(name)!r} and {other.settings.get(name)!r}" for name in names)
            return [f"steps {first.step} and {other.step} were dumped with different settings: {which}"]
    return []


def has_changed(first: Index, other: Index, name: str) -> bool:
    """Return True if a setting differs between two indexes."""
    return first.settings.get(name) != other.settings.get(name)
