"""The folder that a rehearsal runs in: what the script reads is there, what it writes stays there.

It mirrors the folder in which the command was given, so that relative paths mean what they meant. Folders are made
anew, small files and everything that looks like a result of training (checkpoints, logs) are copied, so that nothing
of the user's is overwritten; other large files, and what lies in very full folders, are links. At the end everything
that the script has not changed is taken away again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from viaduct.errors import BadRun

LEFT_OUT = {".git", ".hg", "__pycache__", "node_modules", ".venv", "venv", ".mypy_cache", ".pytest_cache"}
SMALL = 1 << 18
RESULTS = (".pth", ".pt", ".ckpt", ".tar", ".h5", ".hdf5", ".pkl", ".npz", ".npy", ".safetensors", ".index", ".meta")
RESULT_WORDS = ("checkpoint", "ckpt", "events.out", ".data-0")
ENTRIES = 5000  # mirrored one by one; folders beyond that are linked whole
COPIED_LIMIT = 2 << 30


@dataclass
class Scene:
    """A mirror of `origin` in `folder`."""

    origin: Path
    folder: Path
    linked: list[str] = field(default_factory=list)  # folders that are the user's own
    _kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    _copied: int = 0

    def set_up(self) -> None:
        self.folder.mkdir(parents=True)
        waiting = [self.origin]
        seen = 0
        while waiting:  # breadth first: what lies near is mirrored before what lies deep
            here = waiting.pop(0)
            inside = self.place(here)
            for entry in entries(here):
                seen += 1
                if entry.is_dir() and not entry.is_symlink() and seen < ENTRIES and self.wanted(entry):
                    (inside / entry.name).mkdir()
                    waiting.append(Path(entry.path))
                elif self.wanted(entry):
                    self.bring(entry, inside / entry.name)

    def wanted(self, entry: os.DirEntry[str]) -> bool:
        path = Path(entry.path)
        return entry.name not in LEFT_OUT and path != self.folder and path not in self.folder.parents

    def place(self, original: Path) -> Path:
        return self.folder / original.relative_to(self.origin)

    def bring(self, entry: os.DirEntry[str], to: Path) -> None:
        if entry.is_file(follow_symlinks=False) and is_copied(entry) and os.access(entry.path, os.R_OK):
            self._copied += entry.stat().st_size
            if self._copied > COPIED_LIMIT:
                raise BadRun(
                    f"{self.origin} holds more than {COPIED_LIMIT >> 30} GiB of checkpoints and small files.",
                    "Give the command in another folder with full paths, or --here to run where you are.",
                )
            shutil.copy2(entry.path, to)
            found = to.stat()
            self._kept[str(to)] = (found.st_mtime_ns, found.st_size)
            return
        to.symlink_to(Path(entry.path).absolute())
        if entry.is_dir():
            self.linked.append(entry.name)

    def clear(self) -> list[str]:
        """Take away what was only brought; what is left is the script's, and its names are returned."""
        for path in self.contents():
            if path.is_symlink() or self.unchanged(path):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        return sorted(str(path.relative_to(self.folder)) for path in self.contents() if path.is_file())

    def unchanged(self, path: Path) -> bool:
        if str(path) not in self._kept:
            return False
        found = path.stat()
        return self._kept[str(path)] == (found.st_mtime_ns, found.st_size)

    def contents(self) -> Iterator[Path]:
        """Deepest first; links are not followed."""
        for root, folders, files in os.walk(self.folder, topdown=False):
            yield from (Path(root) / name for name in (*files, *folders))


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """By name; a folder that may not be read is empty in the mirror, as it is for the script."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda one: one.name)
    except PermissionError:
        return []


def is_copied(entry: os.DirEntry[str]) -> bool:
    name = entry.name.lower()
    looks = name.endswith(RESULTS) or any(word in name for word in RESULT_WORDS)
    return looks or entry.stat().st_size <= SMALL
