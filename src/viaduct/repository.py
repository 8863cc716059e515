"""Read the index, HEAD and settings of a git repository without running git.

Git runs commands in a repository's configuration (filters, fsmonitor, hooks), which is unsafe in a foreign project.
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

MAX_INDEX = 512 << 20  # bytes; millions of files fit
MAX_TEXT = 1 << 20  # bytes of config, HEAD and other small files
SUBMODULE_MODE = 0o160000
EXTENDED = 0x4000  # in the flags of an index entry: 16 further bits of flags follow
SKIP_WORKTREE = 0x4000  # in these further flags
# Lines of a config file: `[section "subsection"]`, and `key = value` or `key` alone.
SECTION = re.compile(r"\s*\[\s*([\w.-]+)\s*(?:\"((?:[^\"\\]|\\.)*)\")?\s*\]")
SETTING = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:=\s*(.*?))?\s*$")


class UnreadableRepository(Exception):
    """A repository that viaduct cannot read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Record of a file in the git index."""

    digest: bytes
    mode: int
    size: int
    changed: tuple[int, int]  # ctime: seconds, nanoseconds
    modified: tuple[int, int]  # mtime
    inode: int
    stage: int = 0  # 1 to 3: a version of a file with a merge conflict
    skip_worktree: bool = False  # True: not in the working tree of a sparse checkout


@dataclass(frozen=True)
class Index:
    """Git index: the tracked files, by path relative to the repository."""

    entries: dict[str, Entry] = field(default_factory=dict)
    index_mtime: int = 0  # modification time of the index file itself, in nanoseconds
    algorithm: str = "sha1"

    @cached_property
    def folders(self) -> frozenset[str]:
        """Folders with a tracked file, at any depth."""
        return frozenset(folder for path in self.entries for folder in list_parents(path))

    def has_content_of(self, path: str, file: Path) -> bool:
        """Return True if `file` has the content that the index has for `path`, so that `git restore` can restore it."""
        entry = self.entries.get(path)
        if entry is None or entry.stage or entry.mode == SUBMODULE_MODE:
            return False
        try:
            return self.is_untouched(entry, os.lstat(file)) or hash_blob(file, self.algorithm) == entry.digest
        except OSError:
            return False

    def is_untouched(self, entry: Entry, status: os.stat_result) -> bool:
        """Return True if the file's times, size and inode are those in the index."""
        seconds, nanoseconds = entry.modified
        return (
            split_time(status.st_mtime_ns) == entry.modified
            and split_time(status.st_ctime_ns) == entry.changed
            and (status.st_size & 0xFFFFFFFF, status.st_ino & 0xFFFFFFFF) == (entry.size, entry.inode)  # 32 bits each
            and seconds * 10**9 + nanoseconds < self.index_mtime  # otherwise it may have changed after git read it
        )


@dataclass(frozen=True)
class Repository:
    """Git checkout."""

    top: Path  # folder of the working tree
    folder: Path  # with index and HEAD: `.git`, or another folder for a worktree or submodule
    common: Path  # with the files that worktrees share, such as config and refs; mostly `folder` itself

    @cached_property
    def settings(self) -> dict[str, str]:
        return read_settings(self.common / "config")

    @cached_property
    def index(self) -> Index:
        """Return the parsed index; raise UnreadableRepository if it is damaged or not that of the folder `top`."""
        worktree = self.settings.get("core.worktree")  # git itself sets it in submodules, to the submodule's folder
        if worktree is not None and (self.folder / worktree).resolve() != self.top.resolve():
            raise UnreadableRepository(f"{self.common / 'config'} names another folder: core.worktree = {worktree}")
        path = self.folder / "index"
        try:
            data = read_plain_file(path, MAX_INDEX)
            return parse_index(data, os.lstat(path).st_mtime_ns, self.settings.get("extensions.objectformat", "sha1"))
        except FileNotFoundError:
            return Index()  # no file was added yet
        except OSError as error:
            raise UnreadableRepository(f"{path} cannot be read: {error.strerror}") from None
        except (struct.error, ValueError, IndexError, KeyError):
            raise UnreadableRepository(f"{path} is damaged, or of an unknown version") from None

    def read_head_commit(self) -> str:
        """Return the checked-out commit in hexadecimal digits; empty if it is unknown."""
        try:
            head = read_plain_file(self.folder / "HEAD", MAX_TEXT).decode(errors="replace").strip()
            commit = self.resolve_ref(head.removeprefix("ref:").strip()) if head.startswith("ref:") else head
        except OSError:
            return ""
        return commit if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) else ""

    def resolve_ref(self, name: str) -> str:
        """Return the commit of a ref such as refs/heads/main; empty, or an OSError, if there is none."""
        if not re.fullmatch(r"refs/[^\0]+", name) or ".." in name:
            return ""
        for folder in (self.folder, self.common):
            try:
                return read_plain_file(folder / name, MAX_TEXT).decode(errors="replace").strip()
            except (FileNotFoundError, NotADirectoryError):
                continue
        for line in read_plain_file(self.common / "packed-refs", MAX_INDEX).decode(errors="replace").splitlines():
            digest, _, packed = line.partition(" ")
            if packed == name:
                return digest
        return ""


# Finding a repository


def find_repository(folder: Path) -> Repository | None:
    """Return the repository of a folder; None if there is none, or only a bare one; may raise UnreadableRepository."""
    folder = folder.resolve()
    return next(
        (open_repository(parent) for parent in (folder, *folder.parents) if os.path.lexists(parent / ".git")), None
    )


def open_repository(top: Path) -> Repository:
    """Return the repository with `.git` in the folder `top`; raise UnreadableRepository if `.git` is not valid.

    In a worktree or a submodule `.git` is a file with the path of the folder; it may also be a symbolic link.
    """
    git_path = top / ".git"
    if git_path.is_dir():
        folder = git_path.resolve()
    else:
        try:
            pointer = read_plain_file(git_path, MAX_TEXT).decode(errors="surrogateescape").strip()
        except OSError as error:
            raise UnreadableRepository(f"{git_path} is no repository: {error.strerror}") from None
        if not pointer.startswith("gitdir:"):
            raise UnreadableRepository(f"{git_path} is no repository: it does not begin with `gitdir:`")
        folder = (top / pointer.removeprefix("gitdir:").strip()).resolve()
    if not (folder / "HEAD").is_file():
        raise UnreadableRepository(f"{git_path} is no repository: {folder} has no HEAD")
    try:
        shared = os.fsdecode(read_plain_file(folder / "commondir", MAX_TEXT)).strip()
    except OSError:
        shared = "."
    return Repository(top, folder, (folder / shared).resolve())


def read_settings(path: Path) -> dict[str, str]:
    """Return the settings of a git config file as {"section.key": value}.

    Includes and sections with a subsection (`[remote "origin"]`) are ignored.
    """
    try:
        lines = os.fsdecode(read_plain_file(path, MAX_TEXT)).splitlines()
    except OSError:
        return {}
    settings: dict[str, str] = {}
    section: str | None = None
    for line in lines:
        header = SECTION.match(line)
        if header:
            section = header[1].lower() if header[2] is None else None
            line = line[header.end() :]
        setting = SETTING.match(line)
        if section and setting:
            settings[f"{section}.{setting[1].lower()}"] = unquote("true" if setting[2] is None else setting[2])
    return settings


def unquote(text: str) -> str:
    """Return a value without quotes and without a trailing comment."""
    if text.startswith('"'):
        quoted = re.match(r"\"((?:[^\"\\]|\\.)*)\"", text)
        return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    return re.split(r"\s*[#;]", text, maxsplit=1)[0]


# Parsing the index


def parse_index(data: bytes, index_mtime: int, algorithm: str) -> Index:
    """Parse an index of version 2, 3 or 4; raise ValueError for a split, sparse or damaged one."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(f"index version {version}")
    algorithm = find_checksum_algorithm(data) or algorithm
    width = {"sha1": 20, "sha256": 32}[algorithm]
    entries: dict[str, Entry] = {}
    offset, path = 12, b""
    for _ in range(count):
        entry, path, offset = parse_entry(data, offset, version, width, path)
        entries[os.fsdecode(path)] = entry
    for name in list_extensions(data, offset, len(data) - width):
        if name[:1].islower():  # git: a reader that does not know such an extension must not use the index
            raise ValueError(f"extension {name!r}")
    return Index(entries, index_mtime, algorithm)


def find_checksum_algorithm(data: bytes) -> str:
    """Return the algorithm of the checksum at the end of an index; raise ValueError if the checksum is wrong.

    Return "" if there is none: git writes zeros instead with index.skipHash.
    """
    for name, width in (("sha1", 20), ("sha256", 32)):
        if len(data) > width and hashlib.new(name, data[:-width]).digest() == data[-width:]:
            return name
    if data[-20:] != bytes(20):
        raise ValueError("checksum")
    return ""


def parse_entry(data: bytes, start: int, version: int, width: int, previous: bytes) -> tuple[Entry, bytes, int]:
    """Return the entry at `start`, its path, and the offset of the next entry.

    `width` is the size of a digest; version 4 stores the difference between a path and the `previous` one.
    """
    ctime, ctime_ns, mtime, mtime_ns, _, inode, mode, _, _, size = struct.unpack_from(">10I", data, start)
    end = start + 40 + width
    digest = data[start + 40 : end]
    (flags,) = struct.unpack_from(">H", data, end)
    end += 2
    extended_flags = 0
    if flags & EXTENDED:
        (extended_flags,) = struct.unpack_from(">H", data, end)
        end += 2
    if version == 4:
        dropped, end = parse_offset(data, end)
        stop = data.index(0, end)
        path = previous[: len(previous) - dropped] + data[end:stop]
        following = stop + 1
    else:
        stop = data.index(0, end)
        path = data[end:stop]
        following = start + (stop - start + 8) // 8 * 8  # padded with one to eight NULs
    stage, skip_worktree = flags >> 12 & 3, bool(extended_flags & SKIP_WORKTREE)
    return Entry(digest, mode, size, (ctime, ctime_ns), (mtime, mtime_ns), inode, stage, skip_worktree), path, following


def parse_offset(data: bytes, position: int) -> tuple[int, int]:
    """Return a variable-length integer in the encoding of git's packs, and the position after it."""
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        byte = data[position]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, position + 1


def list_extensions(data: bytes, offset: int, end: int) -> Iterator[str]:
    """Yield the four-letter signatures of an index's extensions."""
    while offset + 8 <= end:
        name, size = struct.unpack_from(">4sI", data, offset)
        yield name.decode("latin-1")
        offset += 8 + size


def hash_blob(path: Path, algorithm: str) -> bytes:
    """Return the digest of the blob that git stores for a file, without filters."""
    if path.is_symlink():
        target = os.fsencode(os.readlink(path))
        return hashlib.new(algorithm, b"blob %d\0" % len(target) + target).digest()
    with open_plain_file(path) as file:
        digest = hashlib.new(algorithm, b"blob %d\0" % os.fstat(file.fileno()).st_size)
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()


def split_time(nanoseconds: int) -> tuple[int, int]:
    """Return a file's time as the index stores it: 32 bits of seconds, and nanoseconds."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    return seconds & 0xFFFFFFFF, fraction


def list_parents(path: str) -> Iterator[str]:
    """Yield the folders above a path: a/b, a for a/b/c."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
