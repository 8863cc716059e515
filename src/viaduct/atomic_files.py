"""Atomic writes: a file is complete or unchanged, however the process ends, and so is a new folder.

A folder that exists is replaced by two renames: a process killed between them leaves the old one in a temporary folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from viaduct.errors import BadData
from viaduct.path_errors import refuse_replacing_special_file

LEFTOVERS = ".*.part"  # pattern of the temporary files and folders that a killed process leaves behind
MAX_NAME_BYTES = 160  # of the file's name in a temporary name, which has an ending and at most 255 bytes
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, quota or file; such an OSError names no file


@contextmanager
def replace_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` if the block succeeds, and is removed otherwise.

    `durable` flushes the file to disk first, so that even a power cut leaves the old or the complete new file.
    """
    refuse_replacing_special_file(path)
    temporary = name_temporary(path)
    try:
        with report_errors_on(temporary, path):
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # the first error is more important
            temporary.unlink(missing_ok=True)
        raise


def write_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the content of a file atomically."""
    with replace_file(path, durable=durable) as file:
        file.write(data)


@contextmanager
def replace_folder(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Provide a temporary folder that replaces the folder `path` if the block succeeds, and is removed otherwise.

    `durable` flushes the new name to disk; the files in the folder are the block's concern.
    """
    with stage_folder(path) as staging:
        folder = staging / "new"
        folder.mkdir()
        yield folder
        move_into_place(folder, path, staging)
        if durable:
            flush_folder(path.parent)


@contextmanager
def stage_folder(path: Path) -> Iterator[Path]:
    """Provide a temporary folder beside `path` within the block, which moves what it makes there to `path`.

    After a success, also remove the temporary folders of `path` that killed processes have left.
    """
    staging = name_temporary(path)
    try:
        with report_errors_on(staging, path):
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            yield staging
        remove_leftovers(path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def move_into_place(new: Path, path: Path, staging: Path) -> None:
    """Rename a file or folder to `path`. A folder at `path` is first moved to `staging`, and back after an error."""
    old = staging / "replaced"
    try:
        if path.is_dir():
            os.replace(path, old)
        os.replace(new, path)
    except BaseException:
        if old.is_dir() and not path.exists():
            os.replace(old, path)
        raise


def move_files(folder: Path, target: Path, last: str) -> None:
    """Rename a folder of files to `target`. If that exists, move the files into it, the one called `last` at the end.

    Other files in `target` stay.
    """
    if not target.exists():
        os.rename(folder, target)
        return
    for file in sorted(folder.iterdir(), key=lambda file: file.name == last):  # False before True
        os.replace(file, target / file.name)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, so that a file renamed there keeps its new name after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def name_temporary(path: Path) -> Path:
    """Return a path beside `path`, unique to this thread, for unfinished output."""
    ending = f".{identify_machine()}-{os.getpid()}-{threading.get_ident()}.part"
    return path.with_name(f".{cut_name(path.name)}{ending}")


def cut_name(name: str) -> str:
    """Return a name with room for an ending; a long one is truncated and gets a checksum of the full name."""
    encoded = os.fsencode(name)
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    return f"{encoded[:MAX_NAME_BYTES].decode('utf-8', 'ignore')}~{zlib.crc32(encoded):08x}"


@cache
def identify_machine() -> str:
    """Return a checksum that names the machine and the container: process ids are unique within them."""
    try:
        pid_namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        pid_namespace = ""
    return f"{zlib.crc32(f'{socket.gethostname()} {pid_namespace}'.encode()):08x}"


@contextmanager
def report_errors_on(temporary: Path, path: Path) -> Iterator[None]:
    """Within the block, raise errors about a temporary file or folder as errors about `path`, which the user knows."""
    try:
        yield
    except OSError as error:
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        is_inside = any(name == str(temporary) or name.startswith(f"{temporary}/") for name in names)
        if not is_inside and (names or error.errno not in NO_ROOM):
            raise
        if error.errno == errno.ENOENT and path.parent.is_dir():  # a folder that allows no new files, such as /proc
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path)) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def remove_leftovers(path: Path) -> None:
    """Remove temporary files and folders of `path` left by processes of this machine that have ended."""
    pattern = re.compile(rf"\.{re.escape(cut_name(path.name))}\.{identify_machine()}-([0-9]+)-[0-9]+\.part")
    for name in os.listdir(path.parent):
        match = pattern.fullmatch(name)
        if match and not is_running(int(match[1])):
            leftover = path.with_name(name)
            with suppress(OSError):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def is_running(process: int) -> bool:
    """Return True if there is a process with this id."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs as another user
        return True
    return True


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder within the block; raise BadData if another process has locked it. A lock ends with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BadData(f"{folder}: another process is writing to this folder.", "Wait for it to end.") from error
            # Some network file systems have no locks; there the folder is not protected.
        yield
    finally:
        os.close(descriptor)
