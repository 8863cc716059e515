"""Mirror of the user's folders, for rehearsals where no overlay can be mounted.

A mirror reproduces the folders that the script may reach by relative paths: the folder that it runs in
(`start_folder`), the project's folder (`project_root`), and the folders above them. The first two, and usually their
parents, are mirrored with everything below them but EXCLUDED_NAMES: folders are created, small files are copied. Large
files, very full folders and all other folders are links to the user's own. `guard.py` replaces a link by a copy before
Python writes there; writes of other programs through a link are detected afterwards, in at most MAX_COMPARED files. At
the end `files.py` moves the files that the script wrote into the record and removes the mirror.
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

EXCLUDED_NAMES = {".git", ".hg", "__pycache__", "node_modules", ".venv", "venv", ".mypy_cache", ".pytest_cache"}
SMALL_FILE = 1 << 18  # bytes up to which any file is copied
LARGE_FILE = 16 << 20  # bytes up to which a file that looks like a result or a database is copied
RESULT_SUFFIXES = (
    ".pth", ".pt", ".ckpt", ".tar", ".h5", ".hdf5", ".pkl", ".npz", ".npy", ".safetensors", ".index", ".meta",
)  # fmt: skip
DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3", ".mdb", ".log", ".csv", ".json")
RESULT_WORDS = ("checkpoint", "ckpt", "events.out", ".data-0")  # in the names of files that look like results
MAX_ENTRIES = 3000  # entries mirrored one by one; further ones are linked
FULL_FOLDER = 1000  # entries; a folder with more of them becomes one link
MAX_COPIED_BYTES = 256 << 20  # of all copies together
MAX_COMPARED = 50_000  # files and folders behind links whose states before and after the run are compared
ROOT = Path("/")  # never mirrored with everything below it: its folders are links, unless a mirrored folder is in them
State = tuple[int, int, int]  # of a file: modification time in ns, size, inode


@dataclass
class Mirror:
    """A mirror of `start_folder` and `project_root` below `folder`, which lies in the record folder."""

    start_folder: Path
    folder: Path
    project_root: Path
    variant_tree: Path | None = None  # a variant of the project, such as the migrated one, to show in its place
    # By the target of each link: the initial states of the files there.
    originals: dict[str, dict[str, State]] = field(default_factory=dict)
    _max_copied_bytes: int = 0
    _copied_bytes: int = 0  # so far
    _compared: int = 0  # files and folders behind links whose states were read
    _partly_read: set[str] = field(default_factory=set)  # targets of links below which MAX_COMPARED left files unread
    _mirrored: int = 0  # entries that were mirrored
    _copies: dict[str, State] = field(default_factory=dict)  # initial state of each copy, by its path

    @property
    def work(self) -> Path:
        """Return the mirror's counterpart of the start folder."""
        return self.path_of(self.start_folder)

    def path_of(self, original: Path) -> Path:
        """Return the mirror's counterpart of a path."""
        return self.folder / original.relative_to("/")

    def set_up(self) -> None:
        """Make the mirror: the mirrored folders with their files, and links to the other entries of their parents."""
        self.folder.mkdir(parents=True)
        self._max_copied_bytes = min(MAX_COPIED_BYTES, shutil.disk_usage(self.folder).free // 2)
        for path in self.mirrored_folders:
            for above in reversed([path, *path.parents]):
                self.path_of(above).mkdir(exist_ok=True)
            if path != ROOT:
                self.mirror(path)
        for path in self.mirrored_folders:
            for above in [*path.parents] or [ROOT]:  # / has no parents
                for entry in list_entries(above):
                    if not os.path.lexists(self.path_of(above) / entry.name) and not self.holds_record(entry):
                        os.symlink(entry.path, self.path_of(above) / entry.name)  # `link` would read all states below
        self.copy_added_files()

    @property
    def mirrored_folders(self) -> list[Path]:
        """Return the folders that are mirrored with everything below them.

        These are `start_folder`, `project_root`, and their parents except for the home folder and folders close to the
        file system's root.
        """
        folders = [self.start_folder, self.project_root]
        home = Path(os.path.expanduser("~"))
        parents = [path.parent for path in folders if len(path.parts) > 3 and path.parent != home]
        return list(dict.fromkeys([*folders, *parents]))

    def mirror(self, folder: Path) -> None:
        """Mirror a folder breadth first, so that MAX_ENTRIES cuts off its lower levels."""
        waiting = [folder]
        while waiting:
            original = waiting.pop(0)
            for entry in list_entries(original):
                if entry.name in EXCLUDED_NAMES or self.holds_record(entry):
                    continue
                target = self.path_of(original) / entry.name
                self._mirrored += 1
                if entry.is_dir(follow_symlinks=False):
                    if self._mirrored < MAX_ENTRIES and not is_full(entry.path):
                        target.mkdir(exist_ok=True)
                        waiting.append(Path(entry.path))
                    elif not target.exists():
                        self.link(Path(entry.path), target)
                elif not os.path.lexists(target):
                    with suppress(FileNotFoundError):  # another process has removed it since the folder was listed
                        self.copy_or_link(entry, target)

    def holds_record(self, entry: os.DirEntry[str]) -> bool:
        """Return True if an entry is the mirror or a folder above it, such as the record folder."""
        return Path(entry.path) in (self.folder, *self.folder.parents)

    def copy_or_link(self, entry: os.DirEntry[str], target: Path) -> None:
        """Copy a file, or the variant's file if there is one; make a link to a large file.

        A user's link to a mirrored path becomes a link to its counterpart in the mirror.
        """
        original = Path(os.path.realpath(entry.path))  # Path.resolve would fail at a circle of links
        if (replacement := self.find_variant_file(Path(entry.path))) is not None:
            self.copy(replacement, target)
        elif entry.is_symlink() and self.is_mirrored(original):
            target.symlink_to(self.path_of(original))
        elif original.is_file() and os.access(original, os.R_OK) and self.count_as_copied(entry):
            self.copy(original, target)
        else:
            self.link(original, target)

    def copy(self, path: Path, target: Path) -> None:
        """Copy a file, and store the copy's state to notice if the script writes to it."""
        shutil.copy2(path, target)
        self._copies[str(target)] = read_state(target)

    def find_variant_file(self, path: Path) -> Path | None:
        """Return the small file of `variant_tree` that replaces a file; None if there is none, or a large one: data."""
        if self.variant_tree is None or not path.is_relative_to(self.project_root):
            return None
        file = self.variant_tree / path.relative_to(self.project_root)
        is_small = file.is_file() and not file.is_symlink() and file.stat().st_size <= SMALL_FILE
        return file if is_small else None

    def copy_added_files(self) -> None:
        """Copy small files that only `variant_tree` has, such as modules that a migration added, into the mirror."""
        if self.variant_tree is None:
            return
        for path in iterate_below(self.variant_tree):
            target = self.path_of(self.project_root / path.relative_to(self.variant_tree))
            # Behind a link the parent would be the user's own folder.
            is_in_mirror = target.parent.is_dir() and Path(os.path.realpath(target.parent)).is_relative_to(self.folder)
            if is_in_mirror and path.is_file() and path.stat().st_size <= SMALL_FILE and not target.exists():
                self.copy(path, target)

    def is_mirrored(self, path: Path) -> bool:
        """Return True if a path exists and is mirrored."""
        is_within = path.is_relative_to(self.start_folder) or path.is_relative_to(self.project_root)
        return path.exists() and is_within and not EXCLUDED_NAMES & {*path.relative_to("/").parts}

    def count_as_copied(self, entry: os.DirEntry[str]) -> bool:
        """Count an entry as copied and return True; return False if it is not to be copied or the mirror is full.

        To be copied are small files, Python sources, and files that look like results or databases, which a script may
        overwrite.
        """
        size, name = entry.stat().st_size, entry.name.lower()
        is_result = name.endswith((*RESULT_SUFFIXES, *DATABASE_SUFFIXES)) or any(word in name for word in RESULT_WORDS)
        is_copied = size <= SMALL_FILE or name.endswith(".py") or (is_result and size <= LARGE_FILE)
        has_room = self._copied_bytes + size <= self._max_copied_bytes and self._mirrored <= MAX_ENTRIES
        if is_copied and has_room:
            self._copied_bytes += size
        return is_copied and has_room

    def link(self, original: Path, target: Path) -> None:
        """Make `target` a link to the original, and store the original's state."""
        target.symlink_to(original)
        if original.is_dir() or original.is_file():
            self.originals[str(original)] = self.read_states(original)

    def read_states(self, path: Path) -> dict[str, State]:
        """Return the states of a path and everything below it, until MAX_COMPARED is reached."""
        states = {}
        for inner in islice(iterate_below(path), max(0, MAX_COMPARED - self._compared)):
            with suppress(OSError):
                states[str(inner)] = read_state(inner)
        self._compared += len(states)
        if self._compared >= MAX_COMPARED:
            self._partly_read.add(str(path))
        return states

    def find_changed_originals(self) -> list[str]:
        """Return originals behind links that were changed, added or removed, until MAX_COMPARED is reached."""
        changed: set[str] = set()
        self._compared = 0
        for path, initial in self.originals.items():
            current = self.read_states(Path(path))
            if path not in self._partly_read:  # else a name that is not in `initial` may be old
                changed |= current.keys() - initial.keys()
            changed |= {name for name in initial.keys() - current.keys() if not os.path.exists(name)}
            changed |= {name for name in initial.keys() & current.keys() if initial[name] != current[name]}
        record = self.folder.parent
        return sorted(name for name in changed if not Path(name).is_relative_to(record) and Path(name) != record)

    def find_written(self) -> Iterator[tuple[str, Path]]:
        """Yield the original path of each file that the script wrote, and its path in the mirror."""
        for root, folders, files in os.walk(self.folder):
            folders.sort()
            for name in sorted(files):
                path = Path(root) / name
                if not path.is_symlink() and self._copies.get(str(path)) != read_state(path):
                    yield f"/{path.relative_to(self.folder)}", path


def is_full(folder: str) -> bool:
    """Return True for a folder with very many entries, such as a set of images."""
    try:
        with os.scandir(folder) as entries:
            return len(list(islice(entries, FULL_FOLDER + 1))) > FULL_FOLDER
    except OSError:
        return False


def read_state(path: str | Path) -> State:
    """Return a value that changes when a file is written or replaced; for a folder only its inode."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        return 0, 0, status.st_ino
    return status.st_mtime_ns, status.st_size, status.st_ino


def iterate_below(path: Path) -> Iterator[Path]:
    """Yield a path and everything below it, without following links."""
    yield path
    for root, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(root) / name for name in sorted((*folders, *files)))


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return a folder's entries, sorted by name; an empty list if the folder cannot be read or is gone."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (PermissionError, FileNotFoundError):
        return []
