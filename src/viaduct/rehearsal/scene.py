"""The folder that a rehearsal runs in: what the script reads is there, what it writes stays there.

It mirrors the folder in which the command was given, so that relative paths mean what they meant. Folders are made
anew and files are copied, so that nothing of the user's is overwritten. What is too much to be copied (large files
beyond `ROOM` in all, very full folders, folders elsewhere) is linked: `guard.py` refuses to write there, and what was
written all the same is found afterwards. At the end everything that the script has not changed is taken away again.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from viaduct.errors import BadRun

LEFT_OUT = {".git", ".hg", "__pycache__", "node_modules", ".venv", "venv", ".mypy_cache", ".pytest_cache"}
SMALL = 1 << 18
RESULTS = (".pth", ".pt", ".ckpt", ".tar", ".h5", ".hdf5", ".pkl", ".npz", ".npy", ".safetensors", ".index", ".meta")
RESULT_WORDS = ("checkpoint", "ckpt", "events.out", ".data-0")
ENTRIES = 5000  # mirrored one by one; folders beyond that are linked whole
ROOM = 1 << 30  # bytes in all up to which any file is copied
COPIED_LIMIT = 2 << 30  # of small files and results, which are never linked
LOOKED_AT = 50_000  # files and folders behind links that are compared
State = tuple[int, int, int]


@dataclass
class Scene:
    """A mirror of `origin` in `folder`, which lies in the rehearsal's record."""

    origin: Path
    folder: Path
    overlay: tuple[Path, Path] | None = None  # a tree within `origin`, and the one whose files take their place
    linked: list[str] = field(default_factory=list)  # folders that are the user's own
    originals: dict[str, dict[str, State]] = field(default_factory=dict)  # behind links, and what was there
    _room: int = 0
    _looked_at: int = 0
    _kept: dict[str, State] = field(default_factory=dict)
    _copied: int = 0

    def set_up(self) -> None:
        self.folder.mkdir(parents=True)
        self._room = min(ROOM, shutil.disk_usage(self.folder).free // 2)
        waiting = [self.origin]
        seen = 0
        while waiting:  # breadth first: what lies near is mirrored before what lies deep
            here = waiting.pop(0)
            inside = self.place(here)
            for entry in entries(here):
                seen += 1
                if entry.is_dir(follow_symlinks=False) and seen < ENTRIES and self.wanted(entry):
                    (inside / entry.name).mkdir()
                    waiting.append(Path(entry.path))
                elif self.wanted(entry):
                    self.bring(entry, inside / entry.name)
        self.bring_added()

    def wanted(self, entry: os.DirEntry[str]) -> bool:
        path = Path(entry.path)
        return entry.name not in LEFT_OUT and path != self.folder and path not in self.folder.parents

    def place(self, original: Path) -> Path:
        return self.folder / original.relative_to(self.origin)

    def bring(self, entry: os.DirEntry[str], to: Path) -> None:
        """A copy where there is room; else a link. A link of the user's stays one within the mirror."""
        aim = Path(os.path.realpath(entry.path))  # which a circle of links does not stop
        if (instead := self.overlaid(Path(entry.path))) is not None:
            shutil.copy2(instead, to)
            self._kept[str(to)] = state(to)
        elif entry.is_symlink() and self.is_mirrored(aim):
            to.symlink_to(self.place(aim))
        elif aim.is_file() and os.access(aim, os.R_OK) and self.has_room(entry):
            shutil.copy2(aim, to)
            self._kept[str(to)] = state(to)
        else:
            self.link(entry, aim, to)

    def overlaid(self, path: Path) -> Path | None:
        """Return the small file of the other tree that stands here instead; large ones are data, and the same."""
        if self.overlay is None or not path.is_relative_to(self.overlay[0]):
            return None
        instead = self.overlay[1] / path.relative_to(self.overlay[0])
        return instead if instead.is_file() and instead.stat().st_size <= SMALL else None

    def bring_added(self) -> None:
        """Copy what only the other tree has, where its folder is in the mirror: modules that a migration has added."""
        if self.overlay is None:
            return
        root, tree = self.overlay
        if self.origin.is_relative_to(root):
            root, tree = self.origin, tree / self.origin.relative_to(root)
        if not root.is_relative_to(self.origin):
            return
        for path in below(tree):
            to = self.place(root / path.relative_to(tree))
            if path.is_file() and path.stat().st_size <= SMALL and not to.exists() and is_plain_folder(to.parent):
                shutil.copy2(path, to)
                self._kept[str(to)] = state(to)

    def is_mirrored(self, aim: Path) -> bool:
        return aim.exists() and aim.is_relative_to(self.origin) and not LEFT_OUT & {*aim.relative_to(self.origin).parts}

    def has_room(self, entry: os.DirEntry[str]) -> bool:
        size = entry.stat().st_size
        if not is_copied(entry) and self._copied + size > self._room:
            return False
        self._copied += size
        if self._copied > COPIED_LIMIT:
            raise BadRun(
                f"{self.origin} holds more than {COPIED_LIMIT >> 30} GiB of checkpoints and small files.",
                "Give the command in another folder with full paths, or --here to run where you are.",
            )
        return True

    def link(self, entry: os.DirEntry[str], aim: Path, to: Path) -> None:
        to.symlink_to(aim)
        if aim.is_dir():
            self.linked.append(entry.name)
        if aim.is_dir() or aim.is_file():
            self.originals[str(aim)] = self.states(aim)

    def states(self, path: Path) -> dict[str, State]:
        """Of a file, or of all below a folder as far as `LOOKED_AT` allows."""
        found = {}
        for one in islice(below(path), max(0, LOOKED_AT - self._looked_at)):
            with suppress(OSError):
                found[str(one)] = state(one)
        self._looked_at += len(found)
        return found

    def changed_originals(self) -> list[str]:
        """What lies behind links and is no longer what it was: changed, new or gone."""
        changed: set[str] = set()
        self._looked_at = 0
        for path, before in self.originals.items():
            now = self.states(Path(path))
            changed |= {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        record = self.folder.parent
        return sorted(name for name in changed if not Path(name).is_relative_to(record) and Path(name) != record)

    def clear(self) -> list[str]:
        """Take away what was only brought; what is left is the script's, and its names are returned."""
        for path in self.contents():
            if path.is_symlink() or self.unchanged(path):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        return sorted(str(path.relative_to(self.folder)) for path in self.contents() if path.is_file())

    def unchanged(self, path: Path) -> bool:
        return str(path) in self._kept and self._kept[str(path)] == state(path)

    def contents(self) -> Iterator[Path]:
        """Deepest first; links are not followed."""
        for root, folders, files in os.walk(self.folder, topdown=False):
            yield from (Path(root) / name for name in (*files, *folders))


def is_plain_folder(path: Path) -> bool:
    """Return True for a folder that was made for the mirror: behind a link lies the user's own."""
    return path.is_dir() and not any(part.is_symlink() for part in (path, *path.parents))


def state(path: Path) -> State:
    """Changes whenever the file is written or replaced; reading does not change it. Of a folder, only its being."""
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        return 0, 0, found.st_ino
    return found.st_mtime_ns, found.st_size, found.st_ino


def below(path: Path) -> Iterator[Path]:
    yield path
    for root, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(root) / name for name in sorted((*folders, *files)))


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
