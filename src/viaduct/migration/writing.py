"""Write a complete migrated copy of a project or none, and check a project before it is changed in place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from viaduct.atomic_files import cut_name
from viaduct.errors import BadValue
from viaduct.migration import locking
from viaduct.migration.results import Outcome
from viaduct.migration.walk import PARTIAL_SUFFIX, find_unsaved_files, list_folders_above, printable_path
from viaduct.plain_files import open_plain_file
from viaduct.repository import UnreadableRepository

COPY_FOLDER = "copy"
LARGE_BYTES = 1 << 18
"""With `link_data`, which `viaduct carry` sets, a data file above this is linked, not copied."""
MANY_FILES = 100
"""With `link_data`, a folder of data with more files than this, those in subfolders included, is linked."""
MANY_DATA_FILES = 1000
"""With `link_data`, all other data files are linked too if there are more of them than this."""
MAX_SHOWN_FILES = 4
"""Number of files that a refusal names."""


def check_out(path: Path, out: Path) -> None:
    """Raise BadValue for an --out that is the project, lies in it, is not empty or cannot be written."""
    name = printable_path(out)
    is_folder = os.path.isdir(path)
    source = Path(os.path.realpath(path if is_folder else path.parent))
    target = Path(os.path.realpath(out))
    if target == source and is_folder:
        raise BadValue(f"--out {name} is the project itself.", "--in-place changes it there.")
    if is_folder and source in target.parents:
        raise BadValue(
            f"--out {name} lies within {printable_path(path)}.",
            "Name a folder beside it, so that it is not copied too.",
        )
    try:
        if not os.path.isdir(out) and path_exists(out):
            raise BadValue(f"--out {name} exists and is not a folder.", "Name a new folder.")
        if os.path.isdir(out) and os.listdir(out):
            raise BadValue(f"--out {name} exists and is not empty.", "Name a new folder, or remove that one.")
    except OSError as error:
        raise BadValue(f"--out {name} cannot be written: {error.strerror}.", "Name a folder of your own.") from None
    parent = next(folder for folder in target.parents if os.path.lexists(folder))
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK | os.X_OK):
        raise BadValue(f"--out {name}: {printable_path(parent)} cannot be written to.", "Name a folder of your own.")


def path_exists(path: Path) -> bool:
    """Return True if a path exists, also as a broken link; unlike os.path.lexists, raise OSError without permission."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def write_out(outcome: Outcome, out: Path, extra: Mapping[str, str], link_data: bool = False) -> None:
    """Write a migrated copy of the project and the files of `extra`: path -> text.

    The copy is made in a folder beside `out` and renamed when it is complete. `link_data`: see Links. Files that cannot
    be read are moved to `walk.skipped`.
    """
    out = Path(os.path.realpath(out))
    with locking.defer_signals() as deferred, make_parents(out.parent):
        locked = lock_partial_folder(out)
        try:
            copy = locked.folder / COPY_FOLDER
            os.mkdir(copy)
            copy_project(outcome, copy, deferred, Links(outcome) if link_data else None)
            write_extra(copy, extra)
            if out.is_dir():
                shutil.copymode(out, copy)
            deferred.raise_if_signalled()
            os.rename(copy, out)
        except locking.Stopped:
            deferred.report_outcome(f"{printable_path(out)} was not written.")
            raise BadValue(f"stopped by {deferred.name}.", f"{printable_path(out)} was not written.") from None
        except OSError as error:
            raise make_write_error(out, error) from error
        finally:
            shutil.rmtree(locked.folder / COPY_FOLDER, ignore_errors=True)
            locked.release(remove=True)


def make_write_error(out: Path, error: OSError) -> BadValue:
    if error.errno == errno.EBUSY:
        return BadValue(
            f"{printable_path(out)} is a mount point and cannot be replaced.", "Name a new folder within it."
        )
    path = printable_path(error.filename or out)
    return BadValue(f"{printable_path(out)} cannot be written: {error.strerror} ({path}).", "No copy was made.")


@contextlib.contextmanager
def make_parents(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; remove the new ones if the block raises."""
    missing = [item for item in (folder, *folder.parents) if not os.path.lexists(item)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        remove_empty(missing)
        raise make_write_error(folder, error) from error
    except BaseException:
        remove_empty(missing)
        raise


def remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def lock_partial_folder(out: Path) -> locking.LockedFolder:
    """Make and lock the folder for the unfinished copy; remove the copy of an interrupted run from it."""
    folder = out.with_name(f".{cut_name(out.name)}{PARTIAL_SUFFIX}")
    try:
        locked = locking.lock_folder(folder)
    except locking.FolderBusy:
        raise BadValue(
            f"another `viaduct migrate` is writing {printable_path(out)}.", "Wait until it has ended."
        ) from None
    except locking.NotOurFolder as error:
        raise BadValue(f"{printable_path(error)}.", "The copy is made there first: move that away.") from None
    except OSError as error:
        raise make_write_error(out, error) from None
    if os.path.lexists(folder / COPY_FOLDER):
        shutil.rmtree(folder / COPY_FOLDER, ignore_errors=True)
        print(f"Removed an unfinished copy of an interrupted migration: {printable_path(folder)}", file=sys.stderr)
    return locked


class Links:
    """Paths of a project that become links in a copy with `link_data`.

    Data files are those that are neither scripts nor changed, excluded or links. Links are made for folders of more
    than `MANY_FILES` files, all of them data, for data files above `LARGE_BYTES`, and for all other data files if there
    are more than `MANY_DATA_FILES`.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.root = Path(os.path.realpath(outcome.root))
        migrated = [file.path for file in (*outcome.files_to_write, *outcome.helper_files)]
        always_copied = {*migrated, *outcome.walk.scripts, *outcome.walk.excluded, *outcome.walk.links}
        with_scripts = {folder for path in always_copied for folder in list_folders_above(path)}
        data_folders = (folder for path in outcome.walk.other_files for folder in list_folders_above(path))
        counts = Counter(folder for folder in data_folders if folder not in with_scripts)
        large = {folder for folder, count in counts.items() if count > MANY_FILES}
        self.folders = {folder for folder in large if not large & {*list_folders_above(folder)}}
        data = [path for path in outcome.walk.other_files if path not in always_copied and not self.is_within(path)]
        link_all = len(data) > MANY_DATA_FILES
        self.files = {path for path in data if link_all or os.lstat(outcome.root / path).st_size > LARGE_BYTES}

    def is_within(self, path: str) -> bool:
        return bool(self.folders) and any(folder in self.folders for folder in list_folders_above(path))

    def create(self, path: str, copy: Path) -> None:
        os.symlink(self.root / path, copy / path)


def copy_project(outcome: Outcome, copy: Path, deferred: locking.DeferredSignal, links: Links | None) -> None:
    """Copy the files of a project and apply their changes; a file that cannot be read is left out."""
    for folder in outcome.walk.folders:
        if links is not None and folder in links.folders:
            links.create(folder, copy)
        elif links is None or not links.is_within(folder):
            (copy / folder).mkdir()
    for path in outcome.walk.links:
        os.symlink(os.readlink(outcome.root / path), copy / path)
    replaced = {file.path: file for file in outcome.files_to_write}
    helpers = [file.path for file in outcome.helper_files if file.before]
    for path in {*outcome.walk.other_files, *outcome.walk.scripts, *outcome.walk.excluded, *helpers}:
        deferred.raise_if_signalled()
        if links is not None and path in links.files:
            links.create(path, copy)
        elif links is None or not links.is_within(path):
            is_copied = copy_file(outcome, path, copy / path)
            if is_copied and path in replaced:
                replace_bytes(copy / path, replaced[path].after)
    for file in outcome.helper_files:
        if not file.before:
            (copy / file.path).write_bytes(file.after)


def copy_file(outcome: Outcome, path: str, target: Path) -> bool:
    """Copy a file with its mode and times; if it cannot be read, move it to `walk.skipped` and return False."""
    source = outcome.root / path
    if outcome.walk.is_single_script:
        source = Path(os.path.realpath(source))
    try:
        with open_plain_file(source) as reading, open(target, "xb") as writing:
            while chunk := read_chunk(reading):
                writing.write(chunk)
    except SourceError as error:
        target.unlink()
        outcome.walk.leave_out(path, f"cannot be read: {error}")
        return False
    except OSError as error:
        if error.filename != str(source):
            raise
        outcome.walk.leave_out(path, f"cannot be read: {error.strerror}")
        return False
    shutil.copystat(source, target, follow_symlinks=False)
    return True


class SourceError(Exception):
    """A file of the project cannot be read to its end."""


def read_chunk(file: BinaryIO) -> bytes:
    try:
        return file.read(1 << 20)
    except OSError as error:
        raise SourceError(error.strerror) from None


def replace_bytes(path: Path, data: bytes) -> None:
    """Replace the content of a file in the copy, also a read-only one; its mode stays."""
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def write_extra(copy: Path, extra: Mapping[str, str]) -> None:
    """Write the files `extra`: path -> text. Shell scripts become executable, except env.sh, which is sourced."""
    for name, text in extra.items():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        if target.suffix == ".sh" and target.name != "env.sh":
            target.chmod(0o755)


def check_in_place(path: Path) -> None:
    """Raise BadValue for a link to a file: --in-place would replace the link and not change the file."""
    if os.path.islink(path) and not os.path.isdir(path):
        raise BadValue(
            f"{printable_path(path)} is a symbolic link to {printable_path(os.path.realpath(path))}.",
            "--in-place would replace the link and leave that file as it is. Name the file itself.",
        )


def check_clean(outcome: Outcome) -> bool:
    """Raise BadValue for a project with files that git could not restore; return False if there is no repository."""
    try:
        unsaved = find_unsaved_files(outcome.walk)
    except UnreadableRepository as error:
        raise BadValue(
            f"whether git holds these files is not known: {printable_path(error)}.",
            "--force changes them all the same; --out DIR writes a copy.",
        ) from None
    if unsaved:
        remainder = f" and {len(unsaved) - MAX_SHOWN_FILES} more" if len(unsaved) > MAX_SHOWN_FILES else ""
        raise BadValue(
            f"{printable_path(outcome.root)} has changes that are not committed: "
            f"{', '.join(printable_path(path) for path in unsaved[:MAX_SHOWN_FILES])}{remainder}.",
            "Commit them first, so that git can undo the migration; or give --force; or --out DIR.",
        )
    return unsaved is not None
