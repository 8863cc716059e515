"""Change all files of a project or none. If the process is killed, the next start restores the files (journal.py).

A file is replaced by renaming a new one to its path. It is overwritten instead if it has several hard links, or if a
new file cannot be moved there with the same owner and attributes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.migration import durable, journal, locking
from viaduct.migration.journal import JOURNAL, NEW, OLD, Change, ChangedMeanwhile, WriteMethod
from viaduct.migration.results import FileResult, Outcome
from viaduct.migration.walk import STATE_FOLDER, printable_path
from viaduct.plain_files import read_plain_file


def write_in_place(outcome: Outcome) -> None:
    write_files(outcome.root, outcome.files_to_write)


def write_files(root: Path, files: Iterable[FileResult]) -> None:
    """Write every file; if that fails, restore all and raise BadValue, which says if a file could not be restored."""
    files = list(files)
    if not files:
        return
    with locking.defer_signals() as deferred:
        writer = InPlaceWriter(root, prepare_folder(root), deferred)
        try:
            writer.write(files)
        except locking.Stopped:
            writer.roll_back()
            deferred.report_outcome("No file was changed.")
            raise BadValue(f"stopped by {deferred.name}.", "No file was changed.") from None
        except OSError as error:
            writer.roll_back()
            path = printable_path(error.filename or root)
            raise BadValue(f"{path} cannot be written: {error.strerror}.", "No file was changed.") from error
        except ChangedMeanwhile as error:
            writer.roll_back()
            raise BadValue(*error.lines) from None
        except BaseException:
            writer.roll_back()
            raise


def prepare_folder(root: Path) -> locking.LockedFolder:
    """Make the folder for journal and copies, lock it and return it."""
    folder = root / STATE_FOLDER
    try:
        locked = locking.lock_folder(folder)
    except locking.FolderBusy:
        raise journal.make_busy_error(root) from None
    except locking.NotOurFolder as error:
        raise BadValue(f"{printable_path(error)}.", "--in-place keeps its journal there: move that away.") from None
    except OSError as error:
        raise BadValue(
            f"{printable_path(root)} takes no new file: {error.strerror}.",
            "--in-place keeps its journal there while it writes. Make the folder writable, or give --out DIR.",
        ) from None
    if os.path.lexists(folder / JOURNAL):  # another run was killed since journal.recover looked for one
        locked.release(remove=False)
        raise BadValue(
            f"a migration of {printable_path(root)} was interrupted just now.", "Start again: that undoes it."
        )
    try:
        journal.remove_contents(folder)
    except OSError as error:
        locked.release(remove=False)
        raise journal.make_recovery_error(folder, error) from None
    return locked


class InPlaceWriter:
    """Writes the files of one migration with --in-place, or restores them."""

    def __init__(self, root: Path, locked: locking.LockedFolder, deferred: locking.DeferredSignal) -> None:
        self.root, self.locked, self.deferred = root, locked, deferred
        self.folder = locked.folder
        self.changes: list[Change] = []
        self.is_complete = False  # True: all files have their new content
        self.rewritten: dict[tuple[int, int], str] = {}  # (device, inode) -> digest of the new content

    def write(self, files: list[FileResult]) -> None:
        """Save old and new contents, write the journal, then change the files."""
        for name in (OLD, NEW):
            os.mkdir(self.folder / name, 0o700)
        for number, file in enumerate(files):
            self.deferred.raise_if_signalled()
            self.changes.append(prepare_change(self.root, self.folder, number, file))
        check_hard_links(self.root, self.changes)
        flush_contents(self.folder, len(files))
        self.deferred.raise_if_signalled()
        journal.write_journal(self.folder, self.changes)
        for number, change in enumerate(self.changes):
            self.deferred.raise_if_signalled()
            self.replace_content(number, change)
        self.check_backups()
        durable.flush_folders({(self.root / change.path).parent for change in self.changes})
        self.deferred.raise_if_signalled()
        os.unlink(self.folder / JOURNAL)
        self.is_complete = True
        self.finish()

    def replace_content(self, number: int, change: Change) -> None:
        """Change one file; a file with several hard links is written once."""
        path, new = self.root / change.path, self.folder / NEW / str(number)
        journal.check_folder(self.root, change.path)
        if change.method == "create":
            return move_new_file(new, path)
        status = os.lstat(path)
        if self.rewritten.get((status.st_dev, status.st_ino)) == change.new:
            return None
        if (status.st_ino, status.st_mtime_ns, stat.S_ISREG(status.st_mode)) != (change.inode, change.modified, True):
            raise journal.make_changed_error(path)
        if change.method == "rename":
            return os.rename(new, path)
        if durable.digest_file(path) != change.old:
            raise journal.make_changed_error(path)
        begun = journal.begun_name(new)
        os.rename(new, begun)
        durable.flush_folders({new.parent})
        journal.rewrite(path, read_plain_file(begun), change.inode)
        self.rewritten[status.st_dev, status.st_ino] = change.new
        return None

    def check_backups(self) -> None:
        """Raise ChangedMeanwhile if a file was changed just before the rename: its hard link in old/ shows that."""
        for number, change in enumerate(self.changes):
            if change.method == "rename" and durable.digest_file(self.folder / OLD / str(number)) != change.old:
                raise journal.make_changed_error(self.root / change.path)

    def finish(self) -> None:
        """Remove old/ and new/ and release the folder; the next start removes what cannot be removed now."""
        with contextlib.suppress(OSError):
            durable.flush_folders({self.folder})
        with contextlib.suppress(OSError):
            journal.remove_contents(self.folder)
        self.locked.release(remove=True)
        if self.deferred.signal is not None and self.is_complete:
            self.deferred.report_outcome("All files had been written.")

    def roll_back(self) -> None:
        """Restore every file; if that fails, raise BadValue and leave the journal for the next start."""
        try:
            if os.path.lexists(self.folder / JOURNAL):
                edited = journal.undo(self.root, self.folder, self.changes)
                if edited:
                    self.locked.release(remove=False)
                    raise journal.make_edited_error(self.root, self.folder, edited)
                os.unlink(self.folder / JOURNAL)
        except OSError as error:
            self.locked.release(remove=False)
            raise BadValue(
                f"{printable_path(error.filename or self.root)} cannot be written: {error.strerror}, "
                "and not every file could be put back.",
                f"Nothing is lost: {printable_path(self.folder)} holds the files as they were.",
                "The next `viaduct migrate` of this project puts them back.",
            ) from error
        self.finish()


def prepare_change(root: Path, folder: Path, number: int, file: FileResult) -> Change:
    """Save the new and the old content of a file; the file itself is not changed."""
    path, new_file = root / file.path, folder / NEW / str(number)
    journal.check_folder(root, file.path)
    if not file.before:
        if os.path.lexists(path):
            raise make_appeared_error(path)
        durable.write_file(new_file, file.after, 0o666)
        durable.inherit_group(new_file, path.parent)
        return Change(file.path, "create", "", durable.digest(file.after))
    status = os.lstat(path)
    if read_plain_file(path) != file.before:
        raise journal.make_changed_error(path)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    durable.write_file(new_file, file.after, 0o600)
    can_rename = can_replace(path, status, folder) and durable.copy_metadata(path, status, new_file)
    method: WriteMethod = "rename" if can_rename else "rewrite"
    save_old(path, folder / OLD / str(number), status, method)
    old_digest, new_digest = durable.digest(file.before), durable.digest(file.after)
    return Change(file.path, method, old_digest, new_digest, status.st_mtime_ns, status.st_ino)


def can_replace(path: Path, status: os.stat_result, folder: Path) -> bool:
    """Return True if renaming can replace a file: one hard link, the same file system, a writable folder."""
    return (
        status.st_nlink == 1
        and status.st_dev == os.lstat(folder).st_dev == os.stat(path.parent).st_dev
        and os.access(path.parent, os.W_OK | os.X_OK)
    )


def save_old(path: Path, old: Path, status: os.stat_result, method: WriteMethod) -> None:
    """Save the old file: as a hard link if it will be renamed over and the file system allows that, else as a copy."""
    if method == "rename":
        try:
            os.link(path, old, follow_symlinks=False)
            return
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS):
                raise
            # EPERM and the like: hard links are not possible here
    durable.write_file(old, read_plain_file(path), 0o600)
    durable.copy_metadata(path, status, old)


def flush_contents(folder: Path, count: int) -> None:
    """Flush the old and new contents to the disk."""
    for name in (NEW, OLD):
        for number in range(count):
            if os.path.lexists(folder / name / str(number)):
                durable.flush(folder / name / str(number))
    durable.flush_folders({folder / NEW, folder / OLD, folder, folder.parent})


def check_hard_links(root: Path, changes: list[Change]) -> None:
    """Raise ChangedMeanwhile if two hard links of one file would get different contents."""
    first_changes: dict[int, Change] = {}
    for change in changes:
        if change.method == "rewrite":
            first = first_changes.setdefault(change.inode, change)
            if first.new != change.new and os.path.samefile(root / first.path, root / change.path):
                raise ChangedMeanwhile(
                    f"{printable_path(first.path)} and {printable_path(change.path)} are one file with two names "
                    "(a hard link), and the migration would write them differently.",
                    "No file was written. Make two files of them, or give --out DIR.",
                )


def make_appeared_error(path: Path) -> ChangedMeanwhile:
    return ChangedMeanwhile(
        f"{printable_path(path)} has appeared during the migration.", "No file was written; start again."
    )


def move_new_file(new: Path, path: Path) -> None:
    """Move a new file to its path; raise ChangedMeanwhile if a file exists there."""
    try:
        return os.link(new, path)
    except FileExistsError:
        raise make_appeared_error(path) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK) or os.path.lexists(path):
            raise
    return os.rename(new, path)
