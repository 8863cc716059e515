"""Listing of a dump directory that never leaves it.

A dump may come from an untrusted source. Links that leave the folder, pipes and devices are not followed. A file name
that the dump states is accepted only if it is a plain name in one folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from viaduct.comparison.storage import describe
from viaduct.comparison.tensors import Stored
from viaduct.errors import BadData, ViaductError

MOST_FILES = 1_000_000
DEEPEST = 24
LARGEST_JSON = 1 << 30  # bytes; the dump.json of a large model has some tens of megabytes
_NUMBERS = re.compile(r"(\d+)")


@dataclass
class Listing:
    """The files below a folder, by folder, and everything that was left out."""

    root: Path
    folders: dict[str, list[str]] = field(default_factory=dict)  # folder, relative ("" is the root) -> names of files
    outward_links: list[str] = field(default_factory=list)  # links that lead out of the folder
    special: dict[str, str] = field(default_factory=dict)  # path of what is no readable file or folder -> why
    notes: list[str] = field(default_factory=list)

    @property
    def files(self) -> Iterator[str]:
        """Yield the paths relative to the root, in natural order."""
        for folder in sorted(self.folders, key=natural_key):
            yield from (f"{folder}/{name}" if folder else name for name in self.folders[folder])


def list_files(root: Path) -> Listing:
    """List the files below a folder; for a file, itself and a mapping.csv beside it (see readers/npu.py)."""
    if not root.is_dir():
        beside = [name for name in ("mapping.csv",) if (root.parent / name).is_file()]
        return Listing(root.parent, {"": [root.name, *beside]})
    found = Listing(root)
    try:
        _list(found, os.path.realpath(root), "", DEEPEST)
    except _TooMany:
        found.notes.append(f"only the first {MOST_FILES:,} files were looked at")
    if found.outward_links:
        found.notes.append(f"links that leave the folder were not followed: {join_some(found.outward_links)}")
    if found.special:
        found.notes.append(f"not read: {join_some(f'{name} ({why})' for name, why in found.special.items())}")
    return found


class _TooMany(Exception):
    """More than MOST_FILES files."""


def _list(found: Listing, real: str, folder: str, depth: int) -> None:
    """Add the files of a folder; `real`: the resolved root, `depth`: how many levels below may still be entered."""
    files, folders = [], []
    try:
        entries = list(os.scandir(found.root / folder))
    except OSError as error:
        found.special[folder or found.root.name] = f"the folder cannot be read: {error.strerror}"
        return
    for entry in entries:
        if entry.is_symlink() and not _within(entry.path, real):
            found.outward_links.append(f"{folder}/{entry.name}".lstrip("/"))
        elif entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        elif entry.is_file():
            files.append(entry.name)
        elif not entry.is_dir():
            found.special[f"{folder}/{entry.name}".lstrip("/")] = explain_special(entry)
    if files:
        found.folders[folder] = sorted(files, key=natural_key)
    if sum(map(len, found.folders.values())) > MOST_FILES:
        raise _TooMany
    if folders and depth == 0:
        found.notes.append(f"folders below {folder} lie more than {DEEPEST} deep and were not looked at")
        return
    for name in sorted(folders, key=natural_key):
        _list(found, real, f"{folder}/{name}" if folder else name, depth - 1)


def explain_special(entry: os.DirEntry[str]) -> str:
    """Return why an entry is not read: a broken link, a pipe, a socket or a device."""
    if entry.is_symlink():
        return "it is a link that leads nowhere"
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"it is {kinds.get(stat.S_IFMT(entry.stat().st_mode), 'no file')}, not a file"


def find_unread(found: Listing, suffixes: tuple[str, ...]) -> dict[str, str]:
    """Return the paths that may have been tensors and were not read, with the reasons."""
    links = [name for name in found.outward_links if name.endswith(suffixes)]
    return {**dict.fromkeys(links, "it is a link that leaves the folder; it was not followed"), **found.special}


def refused_tensors(found: Listing, suffixes: tuple[str, ...], order: int) -> list[Stored]:
    """Return unread files as tensors with a fault, under their full names."""
    unread = find_unread(found, suffixes)
    return [Stored(name, order=order, fault=f"{name}: {why}") for name, why in unread.items()]


def _within(path: str, real: str) -> bool:
    return os.path.realpath(path).startswith(real.rstrip(os.sep) + os.sep)


def resolve_inside(folder: Path, name: object) -> Path | None:
    """Return the file of that plain name in the folder; None if the name or a link leads out of it."""
    if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name or "/" in name or "\\" in name:
        return None
    path = folder / name
    return path if not path.is_symlink() or _within(str(path), os.path.realpath(folder)) else None


def load_json(path: Path) -> Any:
    """Return the content of a JSON file; raise BadData, with the position of the damage, if it cannot be read."""
    try:
        if (size := path.stat().st_size) > LARGEST_JSON:
            raise BadData(f"{path.name} has {size:,} bytes; at most {LARGEST_JSON:,} are read.")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadData(f"{path.name} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadData(f"{path.name} is not whole JSON: {reason}.") from None


def read_header_of(tensor: Stored) -> Stored:
    """Return a tensor with dtype and shape from its file's header; a header that cannot be read becomes its fault."""
    assert tensor.path is not None
    try:
        dtype, shape = describe(tensor.path, tensor.member)
    except ViaductError as error:
        return replace(tensor, fault=error.what)
    return replace(tensor, dtype=dtype, shape=shape)


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts layer2 before layer10."""
    return [_number(part) if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name) if part]


def _number(digits: str) -> tuple[int, str]:
    """Return a sort key for digits: their number; those of 300 digits or more, which int() may refuse, come last."""
    return (int(digits), "") if len(digits) < 300 else (10**300 + len(digits), digits)


def join_some(names: Iterable[str], most: int = 5) -> str:
    """Join a few names, and say how many more there are; control characters are escaped."""
    named = [name if name.isprintable() else repr(name) for name in names]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more
