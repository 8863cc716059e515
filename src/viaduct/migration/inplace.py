"""Change the files of a project, all or none, whatever interrupts it; journal.py undoes what a killed run has left.

A file is replaced by renaming a new one to it. A file with several names (hard links), or whose owner or attributes a
new file could not have, is overwritten instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.migration.durable import copy_metadata, digest, digest_of, flush, flush_folders, inherit_group, write_file
from viaduct.migration.journal import (
    JOURNAL,
    NEW,
    OLD,
    Change,
    ChangedMeanwhile,
    WriteMethod,
    begun_name,
    check_folder,
    make_busy_error,
    make_changed_error,
    make_edited_error,
    make_recovery_error,
    remove_contents,
    rewrite,
    undo,
    write_journal,
)
from viaduct.migration.locking import FolderBusy, LockedFolder, NotOurFolder, Stop, Stopped, defer_signals, lock_folder
from viaduct.migration.run import FileResult, Outcome
from viaduct.migration.walk import STATE_FOLDER, printable_path
from viaduct.plain_files import read_plain_file


def write_in_place(outcome: Outcome) -> None:
    write_files(outcome.root, outcome.written)


def write_files(root: Path, files: Iterable[FileResult]) -> None:
    """Write every file or none; if none, raise BadValue that says why."""
    files = list(files)
    if not files:
        return
    with defer_signals() as stop:
        work = Work(root, start_work(root), stop)
        try:
            work.write(files)
        except Stopped:
            work.take_back()
            stop.report_outcome("No file was changed.")
            raise BadValue(f"stopped by {stop.name}.", "No file was changed.") from None
        except OSError as error:
            work.take_back()
            where = printable_path(error.filename or root)
            raise BadValue(f"{where} cannot be written: {error.strerror}.", "No file was changed.") from error
        except ChangedMeanwhile as error:
            work.take_back()
            raise BadValue(*error.lines) from None
        except BaseException:
            work.take_back()
            raise


def start_work(root: Path) -> LockedFolder:
    """Lock a project, and return the locked folder for the migration's journal and copies."""
    folder = root / STATE_FOLDER
    try:
        held = lock_folder(folder)
    except FolderBusy:
        raise make_busy_error(root) from None
    except NotOurFolder as error:
        raise BadValue(f"{printable_path(error)}.", "--in-place keeps its journal there: move that away.") from None
    except OSError as error:
        raise BadValue(
            f"{printable_path(root)} takes no new file: {error.strerror}.",
            "--in-place keeps its journal there while it writes. Make the folder writable, or give --out DIR.",
        ) from None
    if os.path.lexists(folder / JOURNAL):  # another run was killed since `recover`
        held.release(remove=False)
        raise BadValue(
            f"a migration of {printable_path(root)} was interrupted just now.", "Start again: that undoes it."
        )
    try:
        remove_contents(folder)
    except OSError as error:
        held.release(remove=False)
        raise make_recovery_error(folder, error) from None
    return held


class Work:
    """One run of --in-place."""

    def __init__(self, root: Path, held: LockedFolder, stop: Stop) -> None:
        self.root, self.held, self.stop = root, held, stop
        self.folder = held.folder
        self.changes: list[Change] = []
        self.written = False  # True: all files have their new content
        self.rewritten: dict[tuple[int, int], str] = {}  # (device, inode) -> digest of what was written into it

    def write(self, files: list[FileResult]) -> None:
        """Save old and new contents, write the journal, then put the new files in their place."""
        for name in (OLD, NEW):
            os.mkdir(self.folder / name, 0o700)
        for number, file in enumerate(files):
            self.stop.check()
            self.changes.append(prepare(self.root, self.folder, number, file))
        check_names(self.root, self.changes)
        flush_all(self.folder, len(files))
        self.stop.check()
        write_journal(self.folder, self.changes)
        for number, change in enumerate(self.changes):
            self.stop.check()
            self.replace_content(number, change)
        self.check_backups()
        flush_folders({(self.root / change.path).parent for change in self.changes})
        self.stop.check()
        os.unlink(self.folder / JOURNAL)
        self.written = True
        self.finish()

    def replace_content(self, number: int, change: Change) -> None:
        """Give one file its new content. Of a file with several names it is written once, under the first of them."""
        path, new = self.root / change.path, self.folder / NEW / str(number)
        check_folder(self.root, change.path)
        if change.way == "create":
            return create(new, path)
        found = os.lstat(path)
        if self.rewritten.get((found.st_dev, found.st_ino)) == change.new:
            return None
        if (found.st_ino, found.st_mtime_ns, stat.S_ISREG(found.st_mode)) != (change.inode, change.modified, True):
            raise make_changed_error(path)
        if change.way == "rename":
            return os.rename(new, path)
        if digest_of(path) != change.old:
            raise make_changed_error(path)
        begun = begun_name(new)
        os.rename(new, begun)
        flush_folders({new.parent})
        rewrite(path, read_plain_file(begun), change.inode)
        self.rewritten[found.st_dev, found.st_ino] = change.new
        return None

    def check_backups(self) -> None:
        """Raise if somebody wrote into a file just before it was replaced: `keep_old` has linked that very file."""
        for number, change in enumerate(self.changes):
            if change.way == "rename" and digest_of(self.folder / OLD / str(number)) != change.old:
                raise make_changed_error(self.root / change.path)

    def finish(self) -> None:
        """Remove what is no longer needed; what cannot be removed, the next start removes."""
        with contextlib.suppress(OSError):
            flush_folders({self.folder})
        with contextlib.suppress(OSError):
            remove_contents(self.folder)
        self.held.release(remove=True)
        if self.stop.signal is not None and self.written:
            self.stop.report_outcome("All files had been written.")

    def take_back(self) -> None:
        """Put every file back; raise BadValue if that fails too: then the journal stays for the next start."""
        try:
            if os.path.lexists(self.folder / JOURNAL):
                left = undo(self.root, self.folder, self.changes)
                if left:
                    self.held.release(remove=False)
                    raise make_edited_error(self.root, self.folder, left)
                os.unlink(self.folder / JOURNAL)
        except OSError as error:
            self.held.release(remove=False)
            raise BadValue(
                f"{printable_path(error.filename or self.root)} cannot be written: {error.strerror}, "
                "and not every file could be put back.",
                f"Nothing is lost: {printable_path(self.folder)} holds the files as they were.",
                "The next `viaduct migrate` of this project puts them back.",
            ) from error
        self.finish()


# ---- preparations, which change no file of the project


def prepare(root: Path, folder: Path, number: int, file: FileResult) -> Change:
    """Write the new content of a file and keep the old one; the file itself is not touched."""
    path, new = root / file.path, folder / NEW / str(number)
    check_folder(root, file.path)
    if not file.before:
        if os.path.lexists(path):
            raise make_appeared_error(path)
        write_file(new, file.after, 0o666)
        inherit_group(new, path.parent)
        return Change(file.path, "create", "", digest(file.after))
    found = os.lstat(path)
    if read_plain_file(path) != file.before:
        raise make_changed_error(path)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    write_file(new, file.after, 0o600)
    method: WriteMethod = (
        "rename" if can_replace(path, found, folder) and copy_metadata(path, found, new) else "rewrite"
    )
    keep_old(path, folder / OLD / str(number), found, method)
    return Change(file.path, method, digest(file.before), digest(file.after), found.st_mtime_ns, found.st_ino)


def can_replace(path: Path, found: os.stat_result, folder: Path) -> bool:
    """Return True if a file may be replaced by renaming: no second name, the same file system, a writable folder."""
    return (
        found.st_nlink == 1
        and found.st_dev == os.lstat(folder).st_dev == os.stat(path.parent).st_dev
        and os.access(path.parent, os.W_OK | os.X_OK)
    )


def keep_old(path: Path, old: Path, found: os.stat_result, method: WriteMethod) -> None:
    """Keep a file as it is: its inode under a second name if it is to be renamed over, else a copy of its content."""
    if method == "rename":
        try:
            os.link(path, old, follow_symlinks=False)
            return
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS):
                raise
            # this file system has no hard links
    write_file(old, read_plain_file(path), 0o600)
    copy_metadata(path, found, old)


def flush_all(folder: Path, count: int) -> None:
    """Flush the saved and the new files to the disk."""
    for name in (NEW, OLD):
        for number in range(count):
            if os.path.lexists(folder / name / str(number)):
                flush(folder / name / str(number))
    flush_folders({folder / NEW, folder / OLD, folder, folder.parent})


def check_names(root: Path, changes: list[Change]) -> None:
    """Raise ChangedMeanwhile if two names of the same file would get different contents."""
    first: dict[int, Change] = {}
    for change in changes:
        if change.way == "rewrite":
            other = first.setdefault(change.inode, change)
            if other.new != change.new and os.path.samefile(root / other.path, root / change.path):
                raise ChangedMeanwhile(
                    f"{printable_path(other.path)} and {printable_path(change.path)} are one file with two names "
                    "(a hard link), and the "
                    "migration would write them differently.",
                    "No file was written. Make two files of them, or give --out DIR.",
                )


def make_appeared_error(path: Path) -> ChangedMeanwhile:
    """Return the error for a file that somebody else has made where a new one is to be written."""
    return ChangedMeanwhile(
        f"{printable_path(path)} has appeared during the migration.", "No file was written; start again."
    )


# ---- the change itself


def create(new: Path, path: Path) -> None:
    """Put a new file in its place, never over another."""
    try:
        return os.link(new, path)
    except FileExistsError:
        raise make_appeared_error(path) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK) or os.path.lexists(path):
            raise
    return os.rename(new, path)
