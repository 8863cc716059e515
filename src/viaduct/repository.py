"""Read the files of a git repository without running git.

Git runs commands that the repository's own configuration names: filters, fsmonitor, hooks, the transport of a partial
clone. A project may be somebody else's, so its index, its HEAD and a few settings are read here instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from viaduct.plain_files import open_plain_file, read_plain_file

LARGEST = 512 << 20
"""Bytes of an index; millions of files fit."""
SMALL = 1 << 20
GITLINK, LINK = 0o160000, 0o120000
SECTION = re.compile(r"\s*\[\s*([\w.-]+)\s*(?:\"((?:[^\"\\]|\\.)*)\")?\s*\]")
SETTING = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:=\s*(.*?))?\s*$")


class UnreadableRepository(Exception):
    """A repository whose files do not show what git holds; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Record of a file in the git index."""

    digest: bytes
    mode: int
    size: int
    changed: tuple[int, int]  # ctime: seconds, nanoseconds
    modified: tuple[int, int]
    inode: int
    stage: int = 0
    absent: bool = False  # skip-worktree: not checked out, on purpose


@dataclass(frozen=True)
class Index:
    """The files that git tracks, by their path within the repository."""

    entries: dict[str, Entry] = field(default_factory=dict)
    written: int = 0  # mtime of the index itself, in nanoseconds
    algorithm: str = "sha1"

    @cached_property
    def folders(self) -> frozenset[str]:
        """Folders that hold a tracked file, at any depth."""
        return frozenset(folder for path in self.entries for folder in parents_of(path))

    def holds(self, path: str, file: Path) -> bool:
        """Return True if git has the content of this file: `git restore` would bring it back."""
        entry = self.entries.get(path)
        if entry is None or entry.stage or entry.mode == GITLINK:
            return False
        try:
            return self.is_untouched(entry, os.lstat(file)) or hash_blob(file, self.algorithm) == entry.digest
        except OSError:
            return False

    def is_untouched(self, entry: Entry, found: os.stat_result) -> bool:
        """Return True if git wrote or checked the file and nobody has since, whatever its filters make of it."""
        seconds, nanoseconds = entry.modified
        return (
            split_time(found.st_mtime_ns) == entry.modified
            and split_time(found.st_ctime_ns) == entry.changed
            and (found.st_size & 0xFFFFFFFF, found.st_ino & 0xFFFFFFFF) == (entry.size, entry.inode)
            and seconds * 10**9 + nanoseconds < self.written  # else it may have been changed within the same tick
        )


@dataclass(frozen=True)
class Repository:
    """`folder` holds the index and HEAD; `common` what worktrees share: settings, refs, info/exclude."""

    top: Path
    folder: Path
    common: Path

    @cached_property
    def settings(self) -> dict[str, str]:
        return read_settings(self.common / "config")

    @cached_property
    def index(self) -> Index:
        """Raise UnreadableRepository where the index is of a kind that is not understood."""
        self.check_top()
        path = self.folder / "index"
        try:
            data = read_plain_file(path, LARGEST)
            return parse_index(data, os.lstat(path).st_mtime_ns, self.settings.get("extensions.objectformat", "sha1"))
        except FileNotFoundError:
            return Index()  # nothing was ever added
        except OSError as error:
            raise UnreadableRepository(f"{path} cannot be read: {error.strerror}") from None
        except (struct.error, ValueError, IndexError, KeyError):
            raise UnreadableRepository(f"{path} is damaged, or of a kind that is not understood") from None

    def check_top(self) -> None:
        """Raise if the settings name another folder as the one that is checked out; those of a submodule name its."""
        named = self.settings.get("core.worktree")
        if named is not None and (self.folder / named).resolve() != self.top.resolve():
            raise UnreadableRepository(f"{self.common / 'config'} names another folder: core.worktree = {named}")

    def head_commit(self) -> str:
        """Return the commit that is checked out, in hexadecimal digits; empty where it is not known."""
        try:
            said = read_plain_file(self.folder / "HEAD", SMALL).decode(errors="replace").strip()
            name = said.removeprefix("ref:").strip() if said.startswith("ref:") else ""
            found = self.resolve(name) if name else said
        except OSError:
            return ""
        return found if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found) else ""

    def resolve(self, name: str) -> str:
        if not re.fullmatch(r"refs/[^\0]+", name) or ".." in name:
            return ""
        for folder in (self.folder, self.common):
            try:
                return read_plain_file(folder / name, SMALL).decode(errors="replace").strip()
            except (FileNotFoundError, NotADirectoryError):
                continue
        for line in read_plain_file(self.common / "packed-refs", LARGEST).decode(errors="replace").splitlines():
            digest, _, packed = line.partition(" ")
            if packed == name:
                return digest
        return ""


# ---- where it is


def find_repository(folder: Path) -> Repository | None:
    """Return the repository that a folder lies in; None if there is none, and for a bare one."""
    folder = folder.resolve()
    return next(
        (open_repository(parent) for parent in (folder, *folder.parents) if os.path.lexists(parent / ".git")), None
    )


def open_repository(top: Path) -> Repository:
    """Return the repository whose `.git` lies in this folder; raise UnreadableRepository if that is something else.

    Of a worktree or a submodule `.git` is a file that names the folder; it may also be a link to one.
    """
    git_path = top / ".git"
    if git_path.is_dir():
        folder = git_path.resolve()
    else:
        try:
            said = read_plain_file(git_path, SMALL).decode(errors="surrogateescape").strip()
        except OSError as error:
            raise UnreadableRepository(f"{git_path} is no repository: {error.strerror}") from None
        if not said.startswith("gitdir:"):
            raise UnreadableRepository(f"{git_path} is no repository: it does not begin with `gitdir:`")
        folder = (top / said.removeprefix("gitdir:").strip()).resolve()
    if not (folder / "HEAD").is_file():
        raise UnreadableRepository(f"{git_path} is no repository: {folder} has no HEAD")
    try:
        shared = os.fsdecode(read_plain_file(folder / "commondir", SMALL)).strip()
    except OSError:
        shared = "."
    return Repository(top, folder, (folder / shared).resolve())


def read_settings(path: Path) -> dict[str, str]:
    """Return `section.key` -> value, the last one given; includes are not followed, sub-sections are left out."""
    try:
        lines = os.fsdecode(read_plain_file(path, SMALL)).splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    section: str | None = None
    for line in lines:
        header = SECTION.match(line)
        if header:
            section = header[1].lower() if header[2] is None else None
            line = line[header.end() :]
        setting = SETTING.match(line)
        if section and setting:
            found[f"{section}.{setting[1].lower()}"] = unquote("true" if setting[2] is None else setting[2])
    return found


def unquote(text: str) -> str:
    """Return a value without its quotes and without the comment behind it."""
    if text.startswith('"'):
        quoted = re.match(r"\"((?:[^\"\\]|\\.)*)\"", text)
        return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    return re.split(r"\s*[#;]", text, maxsplit=1)[0]


# ---- the index


def parse_index(data: bytes, written: int, algorithm: str) -> Index:
    """Return what an index of version 2, 3 or 4 holds; raise ValueError for a split or sparse one."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(f"index version {version}")
    algorithm = checksum_algorithm(data) or algorithm
    width = {"sha1": 20, "sha256": 32}[algorithm]
    entries: dict[str, Entry] = {}
    offset, before = 12, b""
    for _ in range(count):
        entry, before, offset = parse_entry(data, offset, version, width, before)
        entries[os.fsdecode(before)] = entry
    for name in extensions(data, offset, len(data) - width):
        if name[:1].islower():  # without understanding it, the entries cannot be trusted: `link`, `sdir`
            raise ValueError(f"extension {name!r}")
    return Index(entries, written, algorithm)


def checksum_algorithm(data: bytes) -> str:
    """Return the hash whose checksum ends the index; empty where git was told to write none."""
    for name, width in (("sha1", 20), ("sha256", 32)):
        if len(data) > width and hashlib.new(name, data[:-width]).digest() == data[-width:]:
            return name
    if data[-20:] != bytes(20):
        raise ValueError("checksum")
    return ""


def parse_entry(data: bytes, start: int, version: int, width: int, before: bytes) -> tuple[Entry, bytes, int]:
    """Return an entry, its path, and where the next begins."""
    ctime, ctime_ns, mtime, mtime_ns, _, inode, mode, _, _, size = struct.unpack_from(">10I", data, start)
    end = start + 40 + width
    digest = data[start + 40 : end]
    (flags,) = struct.unpack_from(">H", data, end)
    end += 2
    more = 0
    if flags & 0x4000:
        (more,) = struct.unpack_from(">H", data, end)
        end += 2
    if version == 4:  # the path without what it shares with the one before
        dropped, end = parse_offset(data, end)
        stop = data.index(0, end)
        path = before[: len(before) - dropped] + data[end:stop]
        following = stop + 1
    else:
        stop = data.index(0, end)
        path = data[end:stop]
        following = start + (stop - start + 8) // 8 * 8  # with one to eight NULs
    entry = Entry(digest, mode, size, (ctime, ctime_ns), (mtime, mtime_ns), inode, flags >> 12 & 3, bool(more & 0x4000))
    return entry, path, following


def parse_offset(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, as packs have them, and where it ends."""
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = data[position]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, position + 1


def extensions(data: bytes, offset: int, end: int) -> Iterator[str]:
    while offset + 8 <= end:
        name, size = struct.unpack_from(">4sI", data, offset)
        yield name.decode("latin-1")
        offset += 8 + size


def hash_blob(path: Path, algorithm: str) -> bytes:
    """Return the digest under which git would keep a file, were there no filters."""
    if path.is_symlink():
        target = os.fsencode(os.readlink(path))
        return hashlib.new(algorithm, b"blob %d\0" % len(target) + target).digest()
    with open_plain_file(path) as file:
        made = hashlib.new(algorithm, b"blob %d\0" % os.fstat(file.fileno()).st_size)
        while piece := file.read(1 << 20):
            made.update(piece)
    return made.digest()


def split_time(nanoseconds: int) -> tuple[int, int]:
    seconds, fraction = divmod(nanoseconds, 10**9)
    return seconds & 0xFFFFFFFF, fraction


def parents_of(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
