"""The journal of a migration in place, and how an interrupted one is undone.

    ROOT/.viaduct-migration/lock      held by the process that writes
                            new/N     what file N will be; N.begun while it is being written into
                            old/N     file N as it was: the same inode where it can be
                            journal   written when all of this is on the disk; removed when all files are in place

While there is a journal, the next start puts back what it names; without one no file has been touched, or all have. A
folder of this name may come with somebody else's project: paths that lead out of it are refused, links not followed.
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
from viaduct.migration.durable import (
    content_of,
    digest,
    digest_of,
    flush,
    flush_folders,
    name_errors,
    write_all,
    write_file,
)
from viaduct.migration.locking import FolderBusy, NotOurFolder, lock_folder
from viaduct.migration.walk import STATE_FOLDER, printable_path
from viaduct.plain_files import read_plain_file

JOURNAL, DRAFT, OLD, NEW = "journal", "journal.draft", "old", "new"
VERSION = 1
MAX_JOURNAL_BYTES = 64 << 20
"""A larger file is not a journal of viaduct."""
MAX_SHOWN_FILES = 3
"""Number of files that a refusal names."""
WriteMethod = Literal["rename", "rewrite", "create"]
"""How a file gets its new content: another file is renamed to it, it is overwritten, or it is new."""


@dataclass(frozen=True)
class Change:
    """One file of a migration, as the journal records it. The fields are the keys of the file format."""

    path: str
    way: WriteMethod
    old: str  # digest of the content before; empty for a new file
    new: str  # digest of the content after
    modified: int = 0  # mtime before, in nanoseconds
    inode: int = 0


class ChangedMeanwhile(Exception):
    """Somebody else has changed a file while the migration ran; `lines` are the message and what to do."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


def make_changed_error(path: Path) -> ChangedMeanwhile:
    """Return the error for a file that was changed during the migration."""
    return ChangedMeanwhile(
        f"{printable_path(path)} was changed while it was being migrated.", "No file was written; start again."
    )


def check_folder(root: Path, path: str) -> None:
    """Raise ChangedMeanwhile if a link that has come since the project was read leads a path out of the project."""
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
    """Write which files a migration changes, before it changes any."""
    record = {"version": VERSION, "pid": os.getpid(), "changes": [asdict(change) for change in changes]}
    write_file(folder / DRAFT, json.dumps(record).encode(), 0o600)
    flush(folder / DRAFT)
    os.rename(folder / DRAFT, folder / JOURNAL)
    flush_folders({folder})


def read_journal(state: Path) -> list[Change]:
    """Return the changes that a killed run had begun; none without a journal.

    The folder may have come with somebody else's project: a journal that is not valid raises BadValue.
    """
    try:
        data = read_plain_file(state / JOURNAL, MAX_JOURNAL_BYTES)
    except FileNotFoundError:
        return []
    try:
        record = json.loads(data)
        if record["version"] != VERSION:
            raise ValueError(f"version {record['version']}")
        return [parse_change(item) for item in record["changes"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BadValue(
            f"{printable_path(state / JOURNAL)} is not a journal of this viaduct ({printable_path(error)}).",
            f"Compare {printable_path(state / OLD)} with the files by hand, then remove {printable_path(state)}.",
        ) from None


def parse_change(item: Any) -> Change:
    """Return one change of a journal; raise ValueError for a path that leaves the project."""
    change = Change(**item)
    parts = change.path.split("/")
    if not all(parts) or {".", ".."} & set(parts) or "\0" in change.path:
        raise ValueError(f"path {change.path!r}")
    if change.way not in ("rename", "rewrite", "create"):
        raise ValueError(f"way {change.way!r}")
    if not all(re.fullmatch(r"[0-9a-f]{64}|", text) for text in (change.old, change.new)):
        raise ValueError("digest")
    if not isinstance(change.modified, int) or not isinstance(change.inode, int):
        raise TypeError("modified")
    return change


def remove_contents(folder: Path) -> None:
    """Remove what viaduct writes into its folder, and nothing else."""
    for name in (OLD, NEW):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.listdir(folder / name):
                if re.fullmatch(r"\d+(\.begun)?", entry):
                    os.unlink(folder / name / entry)
            os.rmdir(folder / name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / DRAFT)


def rewrite(path: Path, data: bytes, inode: int) -> None:
    """Overwrite a file's content without replacing the file; raise ChangedMeanwhile if it is another file by now."""
    number = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(number).st_ino != inode:
            raise make_changed_error(path)
        write_all(number, data, path)
        with name_errors(path):
            os.ftruncate(number, len(data))
            os.fsync(number)
    finally:
        os.close(number)


# ---- undoing


def undo(root: Path, folder: Path, changes: list[Change]) -> dict[str, int]:
    """Put all files back; return those that stay, as somebody has edited them since: path -> index in `changes`."""
    left = {}
    for number, change in reversed(list(enumerate(changes))):
        try:
            check_folder(root, change.path)
            restored = restore(root / change.path, folder, number, change)
        except ChangedMeanwhile:
            restored = False
        if not restored:
            left[change.path] = number
    flush_folders({(root / change.path).parent for change in changes if (root / change.path).parent.is_dir()})
    return left


def restore(path: Path, folder: Path, number: int, change: Change) -> bool:
    """Put one file back; False if it has neither its old content, nor the new one, nor a part of each."""
    old, new = folder / OLD / str(number), folder / NEW / str(number)
    present = content_of(path)
    if change.way == "create":
        return remove_created(path, new, change, present)
    if os.path.lexists(new) or (present is not None and digest(present) == change.old):
        return True  # it was never replaced, or is back already
    if digest_of(old) != change.old and not is_inode(old, change.inode):
        return False
    if present is None:
        if os.path.lexists(path) or not path.parent.is_dir():
            return False
        os.rename(old, path)
    elif change.way == "rename" and digest(present) == change.new:
        os.rename(old, path)
    elif change.way == "rewrite" and is_mixture(present, read_plain_file(old), content_of(begun_name(new))):
        rewrite(path, read_plain_file(old), os.lstat(path).st_ino)
        os.utime(path, ns=(os.lstat(path).st_atime_ns, change.modified))
    else:
        return False
    return True


def remove_created(path: Path, new: Path, change: Change, present: bytes | None) -> bool:
    """Remove a file that the migration has added, unless somebody has changed it since; return True."""
    ours = os.path.samefile(new, path) if os.path.lexists(new) and present is not None else True
    if present is not None and ours and digest(present) == change.new:
        os.unlink(path)
    return True


def is_inode(path: Path, inode: int) -> bool:
    """Return True if the saved file is the replaced file itself, so that it has what was written into that last."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_ino == inode


def is_mixture(present: bytes, old: bytes, new: bytes | None) -> bool:
    """Return True if every byte is that of the old or the new content at its position: a write was interrupted."""
    if new is None or not min(len(old), len(new)) <= len(present) <= max(len(old), len(new)):
        return False
    pairs = zip_longest(old[: len(present)], new[: len(present)])
    return all(byte in pair for byte, pair in zip(present, pairs, strict=True))


# ---- at the next start


def recover(path: Path, say: Callable[[str], None]) -> None:
    """Undo what a killed run of --in-place has left in a project's folder or one around it; `say` tells the user."""
    real = Path(os.path.realpath(path))
    root = real if os.path.isdir(real) else real.parent
    for folder in (root, *root.parents):
        try:
            found = os.lstat(folder / STATE_FOLDER)
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and (found.st_uid == os.geteuid() or folder == root):
            recover_folder(folder, say)


def recover_folder(root: Path, say: Callable[[str], None]) -> None:
    """Undo what a killed run has left in this very folder."""
    state = root / STATE_FOLDER
    try:
        held = lock_folder(state)
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
        left = undo(root, state, changes)
        if left:
            raise make_edited_error(root, state, left)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state / JOURNAL)
        remove_contents(state)
    except OSError as error:
        held.release(remove=False)
        raise make_recovery_error(state, error) from error
    except BaseException:
        held.release(remove=False)
        raise
    held.release(remove=True)
    what = "it is undone: every file is as it was before" if changes else "it had changed no file"
    say(f"A migration of {printable_path(root)} was interrupted; {what}.")


def make_busy_error(root: Path) -> BadValue:
    """Return the error for a project that another migration is writing to."""
    return BadValue(
        f"another `viaduct migrate --in-place` is writing to {printable_path(root)}.", "Wait until it has ended."
    )


def make_recovery_error(state: Path, error: OSError) -> BadValue:
    """Return the error for an interrupted migration that cannot be undone."""
    return BadValue(
        f"an interrupted migration cannot be undone: {error.strerror} ({printable_path(error.filename or state)}).",
        f"{printable_path(state)} holds the files as they were; start again when it can be written.",
    )


def make_edited_error(root: Path, state: Path, left: dict[str, int]) -> BadValue:
    """Return the error for files that were edited after an interrupted migration."""
    shortly = [
        f"{printable_path(path)} (before: {printable_path(state / OLD / str(number))})" for path, number in left.items()
    ]
    more = f" and {len(left) - MAX_SHOWN_FILES} more" if len(left) > MAX_SHOWN_FILES else ""
    return BadValue(
        f"a migration of {printable_path(root)} was interrupted, and somebody has changed since: "
        f"{', '.join(shortly[:MAX_SHOWN_FILES])}{more}.",
        "That is left as it is; every other file is as it was before.",
        f"Keep what you need of both, then remove {printable_path(state)}.",
    )
