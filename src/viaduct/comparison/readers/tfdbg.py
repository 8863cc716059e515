"""Reads the files that the TensorFlow debugger writes for `pt NAME -w FILE`, mostly reference outputs of a GPU or CPU.

    {operator, / written as _}.{output}.{time in microseconds}.npy          conv1_BiasAdd.0.1607502000000000.npy

All tensors are outputs. Of several files of one tensor the newest is read. The operators `a/b_c` and `a_b/c` have the
same name in files; align.py reports this if a graph shows that both exist.
"""

from __future__ import annotations

import re
from pathlib import Path

from viaduct.comparison.readers.listing import (
    Listing,
    join_some,
    list_files,
    list_refused_tensors,
    make_natural_key,
    read_header_of,
)
from viaduct.comparison.records import StoredDump, StoredTensor

KIND = "tfdbg"
SUFFIX = ".npy"
# conv1.0.1607502000000000.npy; some tools write a second number before the time.
NAME = re.compile(r"(.+?)\.(\d{1,9})(?:\.\d{1,9})?\.(\d{9,255})\.npy", re.DOTALL)
# A time of any length, if the first pattern does not fit.
_SHORT_TIME = re.compile(r"(.+?)\.(\d{1,9})\.(\d{1,255})\.npy", re.DOTALL)


def can_read(path: Path) -> bool:
    """Return True if most .npy files have names of tfdbg."""
    names = _list_arrays(list_files(path))
    return bool(names) and 2 * sum(NAME.fullmatch(Path(name).name) is not None for name in names) > len(names)


def read(path: Path) -> StoredDump:
    """Read the newest file of each tensor."""
    listing = list_files(path)
    newest: dict[tuple[str, int], tuple[int, str]] = {}  # (operator, output) -> (time, file)
    unnamed, older = [], []  # files without a name of tfdbg, and files with a newer one of the same tensor
    for name in _list_arrays(listing):
        match = NAME.fullmatch(Path(name).name) or _SHORT_TIME.fullmatch(Path(name).name)
        if match is None:
            unnamed.append(name)
            continue
        key, dated_file = (match[1], int(match[2])), (int(match[3]), name)
        if key in newest:
            older.append(min(dated_file, newest[key])[1])
        newest[key] = max(dated_file, newest.get(key, dated_file))
    order = {op: number for number, op in enumerate(sorted({op for op, _ in newest}, key=make_natural_key))}
    tensors = [
        read_header_of(StoredTensor(op, index=index, order=order[op], path=listing.root / newest[op, index][1]))
        for op, index in sorted(newest, key=lambda key: (order[key[0]], key[1]))
    ]
    for unnamed_path in (listing.root / name for name in unnamed):
        tensors.append(read_header_of(StoredTensor(unnamed_path.stem, order=len(order), path=unnamed_path)))
    tensors += list_refused_tensors(listing, (SUFFIX,), len(order) + 1)
    return StoredDump(path, KIND, tuple(tensors), notes=tuple(_make_notes(listing, unnamed, older)))


def _list_arrays(listing: Listing) -> list[str]:
    return [name for name in listing.files if name.endswith(SUFFIX)]


def _make_notes(listing: Listing, unnamed: list[str], older: list[str]) -> list[str]:
    notes = list(listing.notes)
    if unnamed:
        notes.append(f"read as outputs, though tfdbg does not write such names: {join_some(unnamed)}")
    if older:
        notes.append(f"{len(older)} files have a newer one of the same tensor and were left out: {join_some(older)}")
    if others := [name for name in listing.files if name.endswith((".npz", ".pt", ".safetensors"))]:
        notes.append(f"left out, since tfdbg writes .npy: {join_some(others)}")
    return notes
