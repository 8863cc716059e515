"""Find and read the image files that a user names: files, folders with all their subfolders, lists of paths.

    found = find_images(["photo.jpg", "folder"])      found.files in order; found.errors for what is not there
    read_image_file(found.files[0])                   the bytes; None for a file of a folder that is no image

A file that the user named must be an image. In a folder, hidden files and those whose first bytes are not of an image
are passed over. A file called .jpg that is no image is an error in a folder too.
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
LARGEST_FILE = 1 << 29  # bytes; an uncompressed image of as many pixels as are decoded is smaller


class ImageFile(NamedTuple):
    """A file that may be an image."""

    path: str
    is_named: bool  # by the user; else it was found in a folder


class UnreadFile(NamedTuple):
    """A path that gave no image, and why."""

    path: str
    reason: str


@dataclass
class FoundFiles:
    """Files that the paths of a command line lead to."""

    files: list[ImageFile] = field(default_factory=list)
    errors: list[UnreadFile] = field(default_factory=list)
    hidden: int = 0  # files and folders whose names begin with a dot


def find_images(paths: Iterable[str], leave_out: Path | None = None) -> FoundFiles:
    """Return the files that are named and those of the folders that are named, in the order of their paths.

    `leave_out` is a file in such a folder that is no input: what the command itself writes.
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
    """Add the files of a folder and its subfolders to `found`; a folder that links lead to again is visited once."""
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
    """Return the entries of a folder by name; none of a folder that was listed before or cannot be read."""
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
    except OSError:  # links in a circle: opening it as a file reports that
        return False


def read_image_file(file: ImageFile) -> bytes | None:
    """Return the content of an image file, or None for a file of a folder that is no image; raise BadData on errors."""
    try:
        if file.is_named:
            refuse_special_file(file.path)
            with open(file.path, "rb") as stream:
                return read_bounded(stream)
        if not stat.S_ISREG(os.stat(file.path).st_mode):
            return None
        with open(file.path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
            if not is_image(head) and not has_image_suffix(file.path):
                return None
            return head + read_bounded(stream)
    except OSError as error:
        raise BadData(f"{explain(error, file.path)}.") from None


def read_bounded(stream: BinaryIO) -> bytes:
    data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise BadData(f"it has more than {LARGEST_FILE:,} bytes.")
    return data


def has_image_suffix(path: str) -> bool:
    return os.path.splitext(path)[1][1:].lower() in SUFFIXES


def explain(error: OSError | ValueError, path: str) -> str:
    """Return why a path cannot be read, in words."""
    if isinstance(error, OSError):
        return explain_reason(error, path)[0]
    return "a path cannot contain a NUL byte" if "\0" in path else str(error)


def read_path_list(data: bytes) -> list[str]:
    """Return the paths of a list: one a line, or between NUL bytes as `find -print0` writes them."""
    parts = data.split(b"\0") if b"\0" in data else data.splitlines()
    return [os.fsdecode(part) for part in parts if part]
