"""Mirror of the user's folders, for rehearsals where no overlay can be mounted.

Below `folder` the paths of the file system are reproduced as far as the script may reach them by relative paths: the
folder in which the command was given, the project's, and those above them. Folders near by are created as folders,
small files are copied. Large files, very full folders and folders further away are links to the user's own. `guard.py`
replaces a link by a copy before Python writes there; writes of other programs through a link are detected afterwards.
At the end `files.py` keeps the files that the script wrote and removes the mirror.
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

LEFT_OUT = {".git", ".hg", "__pycache__", "node_modules", ".venv", "venv", ".mypy_cache", ".pytest_cache"}
SMALL = 1 << 18  # bytes up to which any file is copied
LARGE = 16 << 20  # bytes up to which a file that looks like a result is copied
RESULTS = (".pth", ".pt", ".ckpt", ".tar", ".h5", ".hdf5", ".pkl", ".npz", ".npy", ".safetensors", ".index", ".meta")
DATABASES = (".db", ".sqlite", ".sqlite3", ".mdb", ".log", ".csv", ".json")
RESULT_WORDS = ("checkpoint", "ckpt", "events.out", ".data-0")
ENTRIES = 3000  # mirrored one by one; folders beyond that are linked whole
FULL = 1000  # entries of a folder beyond which it is linked whole
ROOM = 256 << 20  # bytes in all that are copied
MAX_COMPARED = 50_000  # files and folders behind links whose states are compared
ROOT = Path("/")  # is never mirrored: the system's own folders are links
State = tuple[int, int, int]  # time of change in ns, size, inode


@dataclass
class Mirror:
    """A mirror of `origin` and `root` below `folder`, which lies in the rehearsal's record."""

    origin: Path
    folder: Path
    root: Path | None = None  # of the project
    tree: Path | None = None  # a migrated copy of `root`, whose small files take the place of those in `root`
    linked: list[str] = field(default_factory=list)  # names of folders near by that are links to the user's own
    originals: dict[str, dict[str, State]] = field(default_factory=dict)  # targets of links: the states of files there
    _room: int = 0  # bytes that may be copied
    _compared: int = 0
    _seen: int = 0  # entries
    _copies: dict[str, State] = field(default_factory=dict)  # copied files, and their states then
    _copied: int = 0  # bytes

    @property
    def work(self) -> Path:
        """The mirror's counterpart of the folder in which the command was given."""
        return self.path_of(self.origin)

    def path_of(self, original: Path) -> Path:
        """Return the mirrored path of an original."""
        return self.folder / original.relative_to("/")

    def set_up(self) -> None:
        """Create the mirror."""
        self.folder.mkdir(parents=True)
        self._room = min(ROOM, shutil.disk_usage(self.folder).free // 2)
        for path in self.near:
            for above in reversed([path, *path.parents]):
                self.path_of(above).mkdir(exist_ok=True)
            if path != ROOT:
                self.mirror(path)
        for path in self.near:
            for above in [*path.parents] or [ROOT]:
                for entry in list_entries(above):
                    if not os.path.lexists(self.path_of(above) / entry.name) and not self.holds_record(entry):
                        os.symlink(entry.path, self.path_of(above) / entry.name)
        self.bring_added()

    @property
    def near(self) -> list[Path]:
        """Return the folders that are mirrored with all below them: the command's, the project's, and their parents.

        A parent is left out if it is the home folder or close to the root.
        """
        own = [self.origin, *([self.root] if self.root is not None else [])]
        parents = [path.parent for path in own if len(path.parts) > 3 and not is_home(path.parent)]
        return list(dict.fromkeys([*own, *parents]))

    def mirror(self, folder: Path) -> None:
        """Mirror a folder breadth first, so that entries near by come before deep ones where ENTRIES is reached."""
        waiting = [folder]
        while waiting:
            here = waiting.pop(0)
            inside = self.path_of(here)
            found = [entry for entry in list_entries(here) if self.is_included(entry)]
            for entry in found:
                to = inside / entry.name
                self._seen += 1
                if entry.is_dir(follow_symlinks=False):
                    if self._seen < ENTRIES and not is_full(entry.path):
                        to.mkdir(exist_ok=True)
                        waiting.append(Path(entry.path))
                    elif not to.exists():
                        self.link(entry, Path(entry.path), to)
                elif not os.path.lexists(to):
                    with suppress(FileNotFoundError):  # gone since: another process writes there too
                        self.bring(entry, to)

    def is_included(self, entry: os.DirEntry[str]) -> bool:
        """Return True if an entry is mirrored."""
        return entry.name not in LEFT_OUT and not self.holds_record(entry)

    def holds_record(self, entry: os.DirEntry[str]) -> bool:
        """Return True if an entry holds the rehearsal's record."""
        return Path(entry.path) in (self.folder, *self.folder.parents)

    def bring(self, entry: os.DirEntry[str], to: Path) -> None:
        """Copy a file where there is room, else link it. A link of the user to a mirrored path stays a link."""
        aim = Path(os.path.realpath(entry.path))  # unlike Path.resolve, it does not fail at a circle of links
        if (instead := self.overlaid(Path(entry.path))) is not None:
            self.copy(instead, to)
        elif entry.is_symlink() and self.is_mirrored(aim):
            to.symlink_to(self.path_of(aim))
        elif aim.is_file() and os.access(aim, os.R_OK) and self.has_room(entry):
            self.copy(aim, to)
        else:
            self.link(entry, aim, to)

    def copy(self, path: Path, to: Path) -> None:
        """Copy a file, and store its state."""
        shutil.copy2(path, to)
        self._copies[str(to)] = read_state(to)

    def overlaid(self, path: Path) -> Path | None:
        """Return the small file of `tree` that takes a path's place; None if there is none. Large files are data, and
        the same in both."""
        if self.tree is None or self.root is None or not path.is_relative_to(self.root):
            return None
        instead = self.tree / path.relative_to(self.root)
        if instead.is_symlink() or not instead.is_file():
            return None
        return instead if instead.stat().st_size <= SMALL else None

    def bring_added(self) -> None:
        """Copy small files that only `tree` has into folders of the mirror: modules that a migration has added."""
        if self.tree is None or self.root is None:
            return
        for path in below(self.tree):
            to = self.path_of(self.root / path.relative_to(self.tree))
            if path.is_file() and path.stat().st_size <= SMALL and not to.exists() and self.is_made(to.parent):
                self.copy(path, to)

    def is_made(self, folder: Path) -> bool:
        """Return True for a folder of the mirror itself, and False behind a link, where the user's own folder lies."""
        return folder.is_dir() and Path(os.path.realpath(folder)).is_relative_to(self.folder)

    def is_mirrored(self, aim: Path) -> bool:
        """Return True if the target of a link exists and is mirrored."""
        within = aim.is_relative_to(self.origin) or (self.root is not None and aim.is_relative_to(self.root))
        return aim.exists() and within and not LEFT_OUT & {*aim.relative_to("/").parts}

    def has_room(self, entry: os.DirEntry[str]) -> bool:
        """Return True if an entry is copied, and count its bytes."""
        size = entry.stat().st_size
        if not is_copied(entry.name.lower(), size) or self._copied + size > self._room or self._seen > ENTRIES:
            return False
        self._copied += size
        return True

    def link(self, entry: os.DirEntry[str], aim: Path, to: Path) -> None:
        """Link an entry to the original, and store the original's state."""
        to.symlink_to(aim)
        if aim.is_dir():
            self.linked.append(entry.name)
        if aim.is_dir() or aim.is_file():
            self.originals[str(aim)] = self.read_states(aim)

    def read_states(self, path: Path) -> dict[str, State]:
        """Return the state of a file, or of everything below a folder, until MAX_COMPARED is reached."""
        found = {}
        for inner in islice(below(path), max(0, MAX_COMPARED - self._compared)):
            with suppress(OSError):
                found[str(inner)] = read_state(inner)
        self._compared += len(found)
        return found

    def changed_originals(self) -> list[str]:
        """Return originals behind links that were changed, added or removed, as far as MAX_COMPARED reaches."""
        changed: set[str] = set()
        self._compared = 0
        for path, before in self.originals.items():
            now = self.read_states(Path(path))
            changed |= {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        record = self.folder.parent
        return sorted(name for name in changed if not Path(name).is_relative_to(record) and Path(name) != record)

    def find_written(self) -> Iterator[tuple[str, Path]]:
        """Yield the path of each file that the script wrote, as outside of the mirror, and where it lies now."""
        for root, folders, files in os.walk(self.folder):
            folders.sort()
            for name in sorted(files):
                path = Path(root) / name
                if not path.is_symlink() and not self.is_unchanged(path):
                    yield f"/{path.relative_to(self.folder)}", path

    def is_unchanged(self, path: Path) -> bool:
        """Return True if a copied file was not written to."""
        return str(path) in self._copies and self._copies[str(path)] == read_state(path)


def is_home(path: Path) -> bool:
    """Return True for the user's home folder."""
    return str(path) == os.path.expanduser("~")


def is_full(folder: str) -> bool:
    """Return True for a folder with very many entries, such as a set of images."""
    try:
        with os.scandir(folder) as found:
            return len(list(islice(found, FULL + 1))) > FULL
    except OSError:
        return False


def read_state(path: str | Path) -> State:
    """Return a value that changes when a file is written or replaced, and not when it is read; of a folder, its
    inode."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        return 0, 0, found.st_ino
    return found.st_mtime_ns, found.st_size, found.st_ino


def below(path: Path) -> Iterator[Path]:
    """Yield a path and everything below it."""
    yield path
    for root, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(root) / name for name in sorted((*folders, *files)))


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return a folder's entries, sorted by name; of a folder that cannot be read, or is gone, none."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (PermissionError, FileNotFoundError):
        return []


def is_copied(name: str, size: int) -> bool:
    """Return True for small files, Python sources, and files that look like results, which a script may overwrite."""
    looks = name.endswith((*RESULTS, *DATABASES)) or any(part in name for part in RESULT_WORDS)
    return size <= SMALL or name.endswith(".py") or (looks and size <= LARGE)
