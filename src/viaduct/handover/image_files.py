"""Search and reading of the image files on a command line: files, folders with their subfolders, lists of paths.

    found = find_images(["photo.jpg", "folder"])      found.files in order; found.errors for unreadable paths
    read_image_file(found.files[0])                   the bytes; None for a file in a folder that is not an image

A file given by the user must be an image. In folders, hidden files and files without an image's first bytes are
skipped, but a file with an image's suffix that is not an image is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from viaduct.errors import BadData
from viaduct.handover.decoding import HEAD_BYTES, is_image
from viaduct.path_errors import explain_reason, refuse_special_file

SUFFIXES = ("jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "heic", "heif", "avif", "jp2")
MAX_FILE = 1 << 29  # bytes; more than an uncompressed image of the largest size that is decoded


class ImageFile(NamedTuple):
    """File that may be an image."""

    path: str
    is_named: bool  # True: given by the user; False: found in a folder


class UnreadFile(NamedTuple):
    """Path that could not be read."""

    path: str
    reason: str


@dataclass
class FoundFiles:
    """Files at the paths of a command line."""

    files: list[ImageFile] = field(default_factory=list)
    errors: list[UnreadFile] = field(default_factory=list)
    hidden: int = 0  # number of files and folders whose names begin with a dot


def find_images(paths: Iterable[str], leave_out: Path | None = None) -> FoundFiles:
    """Return the given files and the files in given folders, in the order of `paths`.

    `leave_out` is a file that the command writes: it is no input, even if it is in one of the folders.
    """
    found = FoundFiles()
    for path in paths:
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except (OSError, ValueError) as error:
            found.errors.append(UnreadFile(path, explain(error, path)))
            continue
        if is_folder:
            search_folder(path, found, os.path.realpath(leave_out) if leave_out else None)
        else:
            found.files.append(ImageFile(path, is_named=True))
    return found


def search_folder(folder: str, found: FoundFiles, leave_out: str | None) -> None:
    """Add the files of a folder and its subfolders to `found`; each folder is visited once, even with links."""
    visited: set[tuple[int, int]] = set()
    open_folders: list[Iterator[os.DirEntry[str]]] = [list_folder(folder, found, visited)]
    while open_folders:
        entry = next(open_folders[-1], None)
        if entry is None:
            open_folders.pop()
        elif entry.name.startswith("."):
            found.hidden += 1
        elif is_folder(entry):
            open_folders.append(list_folder(entry.path, found, visited))
        elif leave_out is None or os.path.realpath(entry.path) != leave_out:
            found.files.append(ImageFile(entry.path, is_named=False))


def list_folder(folder: str, found: FoundFiles, visited: set[tuple[int, int]]) -> Iterator[os.DirEntry[str]]:
    """Return the entries of a folder by name; none if the folder was listed before or cannot be read."""
    try:
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in visited:
            return iter(())
        visited.add((status.st_dev, status.st_ino))
        with os.scandir(folder) as entries:
            return iter(sorted(entries, key=lambda entry: entry.name))
    except OSError as error:
        found.errors.append(UnreadFile(folder, explain(error, folder)))
        return iter(())


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # circular links; opening the entry as a file reports them
        return False


def read_image_file(file: ImageFile) -> bytes | None:
    """Read an image file; return None for a file in a folder that is not an image; raise BadData on errors."""
    try:
        if file.is_named:
            refuse_special_file(file.path)
            with open(file.path, "rb") as stream:
                return read_bounded(stream)
        if not stat.S_ISREG(os.stat(file.path).st_mode):
            return None
        with open(file.path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
            suffix = os.path.splitext(file.path)[1][1:].lower()
            if not is_image(head) and suffix not in SUFFIXES:
                return None
            return head + read_bounded(stream)
    except OSError as error:
        raise BadData(f"{explain(error, file.path)}.") from None


def read_bounded(stream: BinaryIO) -> bytes:
    """Read the rest of a stream; raise BadData if it has more than MAX_FILE bytes."""
    data = stream.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise BadData(f"it has more than {MAX_FILE:,} bytes.")
    return data


def explain(error: OSError | ValueError, path: str) -> str:
    """Describe why a path cannot be read."""
    if isinstance(error, OSError):
        return explain_reason(error, path)[0]
    return "a path cannot contain a NUL byte" if "\0" in path else str(error)


def read_path_list(data: bytes) -> list[str]:
    """Parse a list of paths, separated by line ends or, as `find -print0` writes them, by NUL bytes."""
    parts = data.split(b"\0") if b"\0" in data else data.splitlines()
    return [os.fsdecode(part) for part in parts if part]
