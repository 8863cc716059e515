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
from viaduct.comparison.naming import RANK, STEP, safe_member
from viaduct.comparison.tensors import Role, Side, Stored
from viaduct.errors import BadData

KIND = "viaduct"
ROLES: Mapping[str, Role] = {role: role for role in get_args(Role)}
CHUNK = 1 << 20


def recognise(path: Path) -> bool:
    """Whether this folder is, or holds, one of our dumps; looks at names and the first bytes of one index.

    In a step's or rank's folder whatever has that name counts: a damaged dump must not pass for a plain folder.
    """
    found = next(indexes(path), None)
    if found is None:
        return False
    try:
        with found.open("rb") as file:
            start = file.read(200)
            return FORMAT.encode() in start or not start.strip(b"\0 \n") or bool(place_of(found)[2])
    except OSError:
        return True  # it looks like one, and reading it will say what is wrong


def indexes(path: Path) -> Iterator[Path]:
    """The indexes at or below a dump, a run, a step or a rank, by step and rank."""
    if (path / FILE).is_file():
        yield path / FILE
        return
    ranks = numbered(path, RANK)
    steps = numbered(path, STEP)
    if ranks or steps:
        for folder in ranks or steps:
            yield from indexes_of_step(folder)
    elif (path / "dump").is_dir():
        for folder in numbered(path / "dump", STEP):
            yield from indexes_of_step(folder)


def indexes_of_step(folder: Path) -> Iterator[Path]:
    inner = [folder] if (folder / FILE).is_file() else numbered(folder, RANK)
    yield from (place / FILE for place in inner or [folder])


def numbered(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    """The folders of that name in order of their numbers."""
    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_dir()]
    except OSError:
        return []
    found = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [path / name for _, name in sorted(found)]


def read(path: Path, verify: bool = False) -> Side:
    """All that is there; with `verify` every file is read once and held against its checksum."""
    found, notes, damaged = [], [], []
    for place in indexes(path):
        try:
            found.append((place.parent, read_index(place)))
        except BadData as error:
            notes.append(" ".join((f"left out: {error.what}", *error.hints)))
            damaged.append(unreadable(place, error.what))
    if not found:
        raise BadData(f"{str(path)!r} holds no dump that can be read.", *(notes or nothing_there(path)))
    tensors = [tensor for folder, index in found for tensor in stored_tensors(folder, index, verify)]
    tensors += damaged
    notes += differing_settings([index for _, index in found])
    return Side(path, KIND, tuple(tensors), joined_edges(found), tuple(notes), settings_of(found[0][1], tensors))


def place_of(index: Path) -> tuple[int, int, str]:
    """Step and rank of an index by the folders it lies in, and their names as far as they say so."""
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


def unreadable(index: Path, why: str) -> Stored:
    """Stands for all tensors of a step: what cannot be read is no agreement, even if neither side can be."""
    step, rank, _ = place_of(index)
    return Stored(FILE, "", "output", 0, 0, step, rank, "", (), None, fault=why)


def nothing_there(path: Path) -> list[str]:
    if not path.exists():
        return ["There is no such folder."]
    return [f"Looked for {FILE}, step_000000/{FILE} and dump/step_000000/{FILE}."]


def stored_tensors(folder: Path, index: Index, verify: bool) -> Iterator[Stored]:
    present = sizes_in(folder)
    sound: dict[str, str] = {}
    for entry in index.entries:
        fault = entry.fault or misfit(entry, present)
        if verify and not fault and entry.file is not None:
            if entry.file not in sound:
                sound[entry.file] = damage(folder / entry.file, entry)
            fault = sound[entry.file]
        yield to_stored(folder, index, entry, fault)


def sizes_in(folder: Path) -> dict[str, int]:
    """Plain files only: a link could lead anywhere."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}


def misfit(entry: Entry, present: Mapping[str, int]) -> str:
    """Why an entry's file cannot be used, or nothing."""
    if entry.role not in ROLES:
        return f"the index gives it the unknown role {entry.role!r}"
    if entry.file is None:
        return "" if entry.statistics else "the index names neither a file nor statistics"
    if not safe_member(entry.file):
        return f"the index names {entry.file!r}, which lies outside its folder"
    if entry.file not in present:
        return f"{entry.file} is missing"
    if present[entry.file] != entry.bytes:
        return f"{entry.file} has {present[entry.file]:,} bytes; {entry.bytes:,} were written"
    return ""


def damage(path: Path, entry: Entry) -> str:
    """Whether a file is what was written."""
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
        path=folder / entry.file if entry.file is not None and safe_member(entry.file) else None,
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
    """Steps of one folder that were made differently: left over from another run, perhaps."""
    first = found[0]
    for other in found[1:]:
        names = sorted(name for name in {*first.settings, *other.settings} if changed(first, other, name))
        if names:
            which = ", ".join(f"{name} {first.settings.get(name)!r} and {other.settings.get(name)!r}" for name in names)
            return [f"steps {first.step} and {other.step} were dumped with different settings: {which}"]
    return []


def changed(first: Index, other: Index, name: str) -> bool:
    return first.settings.get(name) != other.settings.get(name)
