"""Functions that the readers share: they list the files of a dump directory and read JSON and the headers of tensors.

A dump may come from an untrusted source. So links that lead out of the folder are not followed, pipes and devices are
not opened, and a file name that is read from a dump is accepted only if it names a file in the same folder.
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

from viaduct.comparison.records import StoredTensor
from viaduct.comparison.storage import read_dtype_and_shape
from viaduct.errors import BadData, ViaductError

MAX_FILES = 1_000_000
MAX_DEPTH = 24  # of folders
MAX_LISTED = 5  # names in a message
MAX_JSON_BYTES = 1 << 30  # the dump.json of a large model has some tens of megabytes
_NUMBERS = re.compile(r"(\d+)")


@dataclass
class Listing:
    """The files below a folder, and the paths that were left out."""

    root: Path
    folders: dict[str, list[str]] = field(default_factory=dict)  # relative folder ("" is the root) -> names of files
    outward_links: list[str] = field(default_factory=list)  # links that lead out of the folder
    special: dict[str, str] = field(default_factory=dict)  # path that is not a readable file or folder -> why
    notes: list[str] = field(default_factory=list)

    @property
    def files(self) -> Iterator[str]:
        """Yield the paths relative to the root, in natural order."""
        for folder in sorted(self.folders, key=make_natural_key):
            yield from (f"{folder}/{name}" if folder else name for name in self.folders[folder])


def list_files(root: Path) -> Listing:
    """List the files below a folder; for a file, this file and a mapping.csv beside it (see readers/npu.py)."""
    if not root.is_dir():
        mapping = ["mapping.csv"] if (root.parent / "mapping.csv").is_file() else []
        return Listing(root.parent, {"": [root.name, *mapping]})
    listing = Listing(root)
    try:
        _add_folder(listing, os.path.realpath(root), "", depth=MAX_DEPTH)
    except _TooMany:
        listing.notes.append(f"only the first {count_files(listing):,} files were examined")
    if listing.outward_links:
        listing.notes.append(f"links that leave the folder were not followed: {join_some(listing.outward_links)}")
    if listing.special:
        listing.notes.append(f"not read: {join_some(f'{name} ({why})' for name, why in listing.special.items())}")
    return listing


class _TooMany(Exception):
    """More than MAX_FILES files."""


def count_files(listing: Listing) -> int:
    return sum(map(len, listing.folders.values()))


def _add_folder(listing: Listing, real_root: str, folder: str, depth: int) -> None:
    """Add the files of a folder and of `depth` levels of folders below; `real_root`: the root without links."""
    files, folders = [], []
    try:
        entries = list(os.scandir(listing.root / folder))
    except OSError as error:
        listing.special[folder or listing.root.name] = f"the folder cannot be read: {error.strerror}"
        return
    for entry in entries:
        if entry.is_symlink() and not _is_within(entry.path, real_root):
            listing.outward_links.append(f"{folder}/{entry.name}".lstrip("/"))
        elif entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        elif entry.is_file():
            files.append(entry.name)
        elif not entry.is_dir():
            listing.special[f"{folder}/{entry.name}".lstrip("/")] = explain_special(entry)
    if files:
        listing.folders[folder] = sorted(files, key=make_natural_key)
    if count_files(listing) > MAX_FILES:
        raise _TooMany
    if folders and depth == 0:
        listing.notes.append(f"folders below {folder} are nested more than {MAX_DEPTH} deep and were not examined")
        return
    for name in sorted(folders, key=make_natural_key):
        _add_folder(listing, real_root, f"{folder}/{name}" if folder else name, depth - 1)


def explain_special(entry: os.DirEntry[str]) -> str:
    """Return why an entry is not read: a broken link, a pipe, a socket or a device."""
    if entry.is_symlink():
        return "it is a broken link"
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return f"it is {kinds.get(stat.S_IFMT(entry.stat().st_mode), 'no file')}, not a file"


def find_unread(listing: Listing, suffixes: tuple[str, ...]) -> dict[str, str]:
    """Return the paths of possible tensors that were not read, with the reasons."""
    links = [name for name in listing.outward_links if name.endswith(suffixes)]
    return {**dict.fromkeys(links, "it is a link that leaves the folder; it was not followed"), **listing.special}


def list_refused_tensors(listing: Listing, suffixes: tuple[str, ...], order: int) -> list[StoredTensor]:
    """Return a tensor with a fault for each unread file. `order`: their position, after all other tensors."""
    unread = find_unread(listing, suffixes)
    return [StoredTensor(name, order=order, fault=f"{name}: {why}") for name, why in unread.items()]


def _is_within(path: str, real_root: str) -> bool:
    return os.path.realpath(path).startswith(real_root.rstrip(os.sep) + os.sep)


def resolve_inside(folder: Path, name: object) -> Path | None:
    """Return the path of that name in the folder; None if the name or a link leads out of the folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name or "/" in name or "\\" in name:
        return None
    path = folder / name
    return path if not path.is_symlink() or _is_within(str(path), os.path.realpath(folder)) else None


def load_json(path: Path) -> Any:
    """Return the content of a JSON file; raise BadData if it cannot be read."""
    try:
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            raise BadData(f"{path.name} has {size:,} bytes; at most {MAX_JSON_BYTES:,} are read.")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadData(f"{path.name} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadData(f"{path.name} is not complete JSON: {reason}.") from None


def read_header_of(tensor: StoredTensor) -> StoredTensor:
    """Return a tensor with dtype and shape from its file's header, or with a fault if that cannot be read."""
    assert tensor.path is not None
    try:
        dtype, shape = read_dtype_and_shape(tensor.path, tensor.member)
    except ViaductError as error:
        return replace(tensor, fault=error.message)
    return replace(tensor, dtype=dtype, shape=shape)


def make_natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts layer2 before layer10."""
    return [_make_digits_key(part) if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name) if part]


def _make_digits_key(digits: str) -> tuple[int, str]:
    """Return a sort key by number; numbers of 300 digits or more, which int() may refuse, come last."""
    return (int(digits), "") if len(digits) < 300 else (10**300 + len(digits), digits)


def join_some(names: Iterable[str]) -> str:
    """Join a few names, and count the others; names with control characters are escaped."""
    printable = [name if name.isprintable() else repr(name) for name in names]
    more = f" and {len(printable) - MAX_LISTED} more" if len(printable) > MAX_LISTED else ""
    return ", ".join(printable[:MAX_LISTED]) + more
