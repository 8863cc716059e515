"""Reads dumps of `viaduct train --dump-steps`, `viaduct dump` and `Dump`.

The path may be a dump, a run with `dump/` in it, one step, or one rank of a step. All steps and ranks below it become
one StoredDump. A step with a damaged index becomes one tensor with a fault.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from viaduct.comparison.index import FORMAT, INDEX_FILE, Entry, Index, read_index
from viaduct.comparison.naming import RANK_FOLDER, STEP_FOLDER, is_plain_file_name
from viaduct.comparison.records import ROLES, StoredDump, StoredTensor
from viaduct.errors import BadData

KIND = "viaduct"


def can_read(path: Path) -> bool:
    """Return True if the folder is or holds a dump of viaduct, by names and the first bytes of an index.

    In a folder named step_… or rank_… any index.json counts: a damaged dump must not be read as a plain folder.
    """
    index = next(find_indexes(path), None)
    if index is None:
        return False
    try:
        with index.open("rb") as file:
            start = file.read(200)
            _, _, folder_names = identify_index(index)
            return FORMAT.encode() in start or not start.strip(b"\0 \n") or bool(folder_names)
    except OSError:
        return True  # reading it reports the error


def find_indexes(path: Path) -> Iterator[Path]:
    """Yield the indexes at or below a dump, a run, a step or a rank, by step and rank."""
    if (path / INDEX_FILE).is_file():
        yield path / INDEX_FILE
        return
    ranks = list_numbered_folders(path, RANK_FOLDER)
    steps = list_numbered_folders(path, STEP_FOLDER) or list_numbered_folders(path / "dump", STEP_FOLDER)
    for folder in ranks or steps:
        yield from find_indexes_of_step(folder)


def find_indexes_of_step(folder: Path) -> Iterator[Path]:
    inner = [folder] if (folder / INDEX_FILE).is_file() else list_numbered_folders(folder, RANK_FOLDER)
    yield from (rank_folder / INDEX_FILE for rank_folder in inner or [folder])


def list_numbered_folders(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the folders in `path` that match, in order of their numbers; none if it cannot be listed."""
    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_dir()]
    except OSError:
        return []
    numbered = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [path / name for _, name in sorted(numbered)]


def read(path: Path) -> StoredDump:
    """Read all steps and ranks. Checksums are verified when a tensor is opened (measuring.py)."""
    indexes, notes, damaged = [], [], []
    for index_path in find_indexes(path):
        try:
            refuse_mixture(index_path)
            indexes.append((index_path.parent, read_index(index_path)))
        except BadData as error:
            notes.append(" ".join((f"left out: {error.message}", *error.hints)))
            step, rank, _ = identify_index(index_path)
            # One tensor with a fault stands for the whole step.
            damaged.append(StoredTensor(INDEX_FILE, step=step, rank=rank, fault=error.message))
    if not indexes:
        places = f"Looked for {INDEX_FILE}, step_000000/{INDEX_FILE} and dump/step_000000/{INDEX_FILE}."
        raise BadData(f"{str(path)!r} holds no dump that can be read.", *(notes or [places]))
    tensors = [tensor for folder, index in indexes for tensor in iterate_tensors(folder, index)]
    tensors += damaged
    notes += describe_different_settings([index for _, index in indexes])
    settings = describe_settings(indexes[0][1], tensors)
    return StoredDump(path, KIND, tuple(tensors), join_edges(indexes), tuple(notes), settings)


def refuse_mixture(index_path: Path) -> None:
    """Raise BadData for a step that also has folders of ranks: earlier versions left such mixtures."""
    if ranks := list_numbered_folders(index_path.parent, RANK_FOLDER):
        raise BadData(
            f"{index_path.parent} holds a dump of one process ({INDEX_FILE}) and one of ranks ({ranks[0].name}).",
            "Compare a rank by its own folder, or remove the older of the two.",
        )


def identify_index(index: Path) -> tuple[int, int, str]:
    """Return step and rank of an index from the names of its folders, and these names."""
    step, rank, names = 0, 0, []
    for name in index.absolute().parts[-3:-1]:
        if match := STEP_FOLDER.fullmatch(name):
            step = int(match[1])
        elif match := RANK_FOLDER.fullmatch(name):
            rank = int(match[1])
        else:
            continue
        names.append(name)
    return step, rank, "/".join(names)


def iterate_tensors(folder: Path, index: Index) -> Iterator[StoredTensor]:
    """Yield the tensors of one index; links in its folder are ignored."""
    with os.scandir(folder) as files:
        sizes = {file.name: file.stat().st_size for file in files if file.is_file(follow_symlinks=False)}
    for entry in index.tensors:
        yield make_tensor(folder, index, entry, entry.fault or find_fault(entry, sizes))


def find_fault(entry: Entry, sizes: Mapping[str, int]) -> str:
    """Return why an entry's file cannot be used; empty if it can. `sizes`: of the existing files."""
    if entry.role not in ROLES:
        return f"the index gives it the unknown role {entry.role!r}"
    if entry.file is None:
        return "" if entry.statistics else "the index names neither a file nor statistics"
    if not is_plain_file_name(entry.file):
        return f"the index names {entry.file!r}, which lies outside its folder"
    if entry.file not in sizes:
        return f"{entry.file} is missing"
    if sizes[entry.file] != entry.bytes:
        return f"{entry.file} has {sizes[entry.file]:,} bytes; by its index it should have {entry.bytes:,}"
    return ""


def make_tensor(folder: Path, index: Index, entry: Entry, fault: str) -> StoredTensor:
    return StoredTensor(
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


def join_edges(indexes: list[tuple[Path, Index]]) -> dict[str, tuple[str, ...]]:
    edges: dict[str, dict[str, None]] = {}
    for _, index in indexes:
        for op, producers in index.edges.items():
            edges.setdefault(op, {}).update(dict.fromkeys(producers))
    return {op: tuple(producers) for op, producers in edges.items()}


def describe_settings(first: Index, tensors: list[StoredTensor]) -> dict[str, str]:
    steps = sorted({tensor.step for tensor in tensors})
    return {**first.settings, "steps": ", ".join(str(step) for step in steps), "ranks": str(first.ranks)}


def describe_different_settings(indexes: list[Index]) -> list[str]:
    """Return a note if two steps or ranks of one folder have different settings: they may come from two runs."""
    first, *others = indexes
    for other in others:
        ours, theirs = ({**index.settings, "number of ranks": str(index.ranks)} for index in (first, other))
        pairs = [(name, ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})]
        if differences := ", ".join(
            f"{name} {value!r} and {other_value!r}" for name, value, other_value in pairs if value != other_value
        ):
            what = f"ranks {first.rank} and {other.rank} of step {first.step}"
            if first.step != other.step:
                what = f"steps {first.step} and {other.step}"
            return [f"{what} were dumped with different settings: {differences}"]
    return []
