"""The journal of a migration in place, and the undoing of an interrupted one.

    ROOT/.viaduct-migration/lock      locked by the process that writes
                            new/N     new content of file N; renamed to its path, or to N.begun to be copied to it
                            old/N     old content of file N: the same inode if possible
                            journal   written after old/ and new/; removed when all files are new or restored

If a journal exists, the next start restores the files that it names. Without one, no file was changed, or all were. The
project may be untrusted: links are not followed, and paths that leave the project are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from viaduct.errors import BadValue
from viaduct.migration import durable
from viaduct.migration.locking import FolderBusy, NotOurFolder, lock_folder
from viaduct.migration.walk import STATE_FOLDER, printable_path
from viaduct.plain_files import read_plain_file

JOURNAL, DRAFT, OLD, NEW = "journal", "journal.draft", "old", "new"
VERSION = 2  # version 1 called a change's method `way`
MAX_JOURNAL_BYTES = 64 << 20
"""A larger file is not a journal of viaduct."""
MAX_SHOWN_FILES = 3
"""Number of files that a refusal names."""
WriteMethod = Literal["rename", "rewrite", "create"]
"""rename: a new file replaces the old one; rewrite: the file is overwritten; create: there was no file."""


@dataclass(frozen=True)
class Change:
    """One changed file in the journal. The fields are the keys of the file format."""

    path: str
    method: WriteMethod
    old: str  # digest of the content before; empty for a new file
    new: str  # digest of the content after
    modified: int = 0  # mtime before, in nanoseconds
    inode: int = 0


class ChangedMeanwhile(Exception):
    """Another process changed a file during the migration. `lines`: the message and what to do."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


def make_changed_error(path: Path) -> ChangedMeanwhile:
    return ChangedMeanwhile(
        f"{printable_path(path)} was changed while it was being migrated.", "No file was written; start again."
    )


def check_folder(root: Path, path: str) -> None:
    """Raise ChangedMeanwhile if a path leads out of the project or through a link, which is new: walk follows none."""
    parent = os.path.dirname(path)
    real = os.path.realpath(root)
    expected = os.path.normpath(os.path.join(real, parent))
    if not (expected == real or expected.startswith(os.path.join(real, ""))):
        raise ChangedMeanwhile(f"{printable_path(path)} leads out of the project.", "No file was written.")
    if os.path.realpath(os.path.join(real, parent)) != expected:
        raise ChangedMeanwhile(
            f"{printable_path(root / parent)} has become a link.", "No file was written; start again."
        )


def begun_name(new: Path) -> Path:
    return new.with_name(f"{new.name}.begun")


def write_journal(folder: Path, changes: list[Change]) -> None:
    """Write the journal, before any file is changed."""
    record = {"version": VERSION, "pid": os.getpid(), "changes": [asdict(change) for change in changes]}
    durable.write_file(folder / DRAFT, json.dumps(record).encode(), 0o600)
    durable.flush(folder / DRAFT)
    os.rename(folder / DRAFT, folder / JOURNAL)
    durable.flush_folders({folder})


def read_journal(state: Path) -> list[Change]:
    """Return the changes of an interrupted run, [] without a journal; raise BadValue for an invalid journal."""
    try:
        data = read_plain_file(state / JOURNAL, MAX_JOURNAL_BYTES)
    except FileNotFoundError:
        return []
    try:
        record = json.loads(data)
        if record["version"] not in (1, VERSION):
            raise ValueError(f"version {record['version']}")
        return [parse_change(item, record["version"]) for item in record["changes"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BadValue(
            f"{printable_path(state / JOURNAL)} is not a journal of this viaduct ({printable_path(error)}).",
            f"Compare {printable_path(state / OLD)} with the files by hand, then remove {printable_path(state)}.",
        ) from None


def parse_change(item: Any, version: int = VERSION) -> Change:
    """Return one change of a journal of a version; raise ValueError for a path that leaves the project."""
    if version == 1:
        item = {"method" if key == "way" else key: value for key, value in item.items()}
    change = Change(**item)
    parts = change.path.split("/")
    if not all(parts) or {".", ".."} & set(parts) or "\0" in change.path:
        raise ValueError(f"path {change.path!r}")
    if change.method not in ("rename", "rewrite", "create"):
        raise ValueError(f"method {change.method!r}")
    if not all(re.fullmatch(r"[0-9a-f]{64}|", text) for text in (change.old, change.new)):
        raise ValueError("digest")
    if not isinstance(change.modified, int) or not isinstance(change.inode, int):
        raise TypeError("modified")
    return change


def remove_contents(folder: Path) -> None:
    """Remove old/, new/ and the journal's draft; raise OSError if they hold files that viaduct did not write."""
    for name in (OLD, NEW):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.listdir(folder / name):
                if re.fullmatch(r"\d+(\.begun)?", entry):
                    os.unlink(folder / name / entry)
            os.rmdir(folder / name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / DRAFT)


def rewrite(path: Path, data: bytes, inode: int) -> None:
    """Overwrite the content of a file; raise ChangedMeanwhile if it no longer has this inode."""
    number = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(number).st_ino != inode:
            raise make_changed_error(path)
        durable.write_all(number, data, path)
        with durable.add_path_to_errors(path):
            os.ftruncate(number, len(data))
            os.fsync(number)
    finally:
        os.close(number)


def undo(root: Path, folder: Path, changes: list[Change]) -> dict[str, int]:
    """Restore all files; return those that were edited since or cannot be restored: path -> index in `changes`."""
    edited = {}
    for number, change in reversed(list(enumerate(changes))):
        try:
            check_folder(root, change.path)
            restored = restore(root / change.path, folder, number, change)
        except ChangedMeanwhile:
            restored = False
        if not restored:
            edited[change.path] = number
    durable.flush_folders({(root / change.path).parent for change in changes if (root / change.path).parent.is_dir()})
    return edited


def restore(path: Path, folder: Path, number: int, change: Change) -> bool:
    """Restore one file; return False if it was edited since, or if its saved copy is damaged or its folder is gone.

    A file that the migration created is removed, unless it was edited since; the result is True in either case.
    """
    old_file, new_file = folder / OLD / str(number), folder / NEW / str(number)
    present = durable.read_content(path)
    if change.method == "create":
        is_moved = present is not None and (not os.path.lexists(new_file) or os.path.samefile(new_file, path))
        if present is not None and is_moved and durable.digest(present) == change.new:
            os.unlink(path)
        return True
    if os.path.lexists(new_file) or (present is not None and durable.digest(present) == change.old):
        return True  # not yet changed, or already restored
    if durable.digest_file(old_file) != change.old and not is_inode(old_file, change.inode):
        return False
    if present is None:
        if os.path.lexists(path) or not path.parent.is_dir():
            return False
        os.rename(old_file, path)
    elif change.method == "rename" and durable.digest(present) == change.new:
        os.rename(old_file, path)
    elif change.method == "rewrite" and is_interrupted_write(present, old_file, begun_name(new_file)):
        rewrite(path, read_plain_file(old_file), os.lstat(path).st_ino)
        os.utime(path, ns=(os.lstat(path).st_atime_ns, change.modified))
    else:
        return False
    return True


def is_inode(path: Path, inode: int) -> bool:
    """Return True if a saved file is the original file itself (a hard link), to be restored whatever its content."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_ino == inode


def is_interrupted_write(present: bytes, old_file: Path, new_file: Path) -> bool:
    """Return True if each byte is that of the old or new content at its position, and the length is between theirs."""
    old, new = read_plain_file(old_file), durable.read_content(new_file)
    if new is None or not min(len(old), len(new)) <= len(present) <= max(len(old), len(new)):
        return False
    pairs = zip_longest(old[: len(present)], new[: len(present)])
    return all(byte in pair for byte, pair in zip(present, pairs, strict=True))


def recover(path: Path, report: Callable[[str], None]) -> None:
    """Undo an interrupted run of --in-place in a project's folder or one around it; `report` prints a message."""
    real = Path(os.path.realpath(path))
    root = real if os.path.isdir(real) else real.parent
    for folder in (root, *root.parents):
        try:
            status = os.lstat(folder / STATE_FOLDER)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and (status.st_uid == os.geteuid() or folder == root):
            recover_folder(folder, report)


def recover_folder(root: Path, report: Callable[[str], None]) -> None:
    """Undo an interrupted run of --in-place in this folder, and report its result."""
    state = root / STATE_FOLDER
    try:
        locked = lock_folder(state)
    except FolderBusy:
        raise make_busy_error(root) from None
    except NotOurFolder as error:
        raise BadValue(
            f"an interrupted migration is to be undone, but {printable_path(error)}.",
            "Let its owner start `viaduct migrate` there once, or remove it.",
        ) from None
    except OSError as error:
        raise make_recovery_error(state, error) from None
    try:
        changes = read_journal(state)
        edited = undo(root, state, changes)
        if edited:
            raise make_edited_error(root, state, edited)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state / JOURNAL)
        remove_contents(state)
    except OSError as error:
        locked.release(remove=False)
        raise make_recovery_error(state, error) from error
    except BaseException:
        locked.release(remove=False)
        raise
    locked.release(remove=True)
    # Without a journal, the migration was killed before the first change or after the last.
    result = (
        "it is undone: every file that it had changed is as it was before" if changes else "it changed no file, or all"
    )
    report(f"A migration of {printable_path(root)} was interrupted; {result}.")


def make_busy_error(root: Path) -> BadValue:
    return BadValue(
        f"another `viaduct migrate --in-place` is writing to {printable_path(root)}.", "Wait until it has ended."
    )


def make_recovery_error(state: Path, error: OSError) -> BadValue:
    return BadValue(
        f"an interrupted migration cannot be undone: {error.strerror} ({printable_path(error.filename or state)}).",
        f"{printable_path(state)} holds the files as they were; start again when it can be written.",
    )


def make_edited_error(root: Path, state: Path, edited: dict[str, int]) -> BadValue:
    """Return the error for files edited after an interrupted migration: path -> number of its copy in old/."""
    descriptions = [
        f"{printable_path(path)} (before: {printable_path(state / OLD / str(number))})"
        for path, number in edited.items()
    ]
    remainder = f" and {len(edited) - MAX_SHOWN_FILES} more" if len(edited) > MAX_SHOWN_FILES else ""
    return BadValue(
        f"a migration of {printable_path(root)} was interrupted, and these files, or their saved copies, were changed "
        f"since: {', '.join(descriptions[:MAX_SHOWN_FILES])}{remainder}.",
        "They are left as they are; every other changed file is as it was before.",
        f"Keep what you need of both, then remove {printable_path(state)}.",
    )
