"""Steps of writing files that survive a crash: write, flush to the disk, copy owner and attributes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from viaduct.plain_files import read_plain_file

UNFLUSHABLE = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM, errno.ELOOP)
"""Errors of flushing a folder that are ignored: it is not supported, or the folder may not be opened."""


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Write a new file; raise OSError if the path exists, even as a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, data, path)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes, path: Path) -> None:
    """Write all bytes to an open file; one call of pwrite may write only a part of them."""
    written = 0
    while written < len(data):
        with add_path_to_errors(path):
            written += os.pwrite(descriptor, data[written:], written)


@contextlib.contextmanager
def add_path_to_errors(path: Path) -> Iterator[None]:
    """Add the path to an OSError; errors of calls with a file descriptor name no path."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def flush(path: Path) -> None:
    """Flush a file or folder to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with add_path_to_errors(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folders(folders: set[Path]) -> None:
    """Flush folders, so that files created or renamed in them survive a power cut."""
    for folder in folders:
        try:
            flush(folder)
        except OSError as error:
            if error.errno not in UNFLUSHABLE:
                raise


def copy_metadata(path: Path, status: os.stat_result, new: Path) -> bool:
    """Copy owner, mode and extended attributes, including access lists, to a new file; return False if that fails.

    `status`: the stat result of `path`.
    """
    try:
        new_status = os.lstat(new)
        if (new_status.st_uid, new_status.st_gid) != (status.st_uid, status.st_gid):
            os.chown(new, status.st_uid, status.st_gid)
        copy_attributes(path, new)
        os.chmod(new, stat.S_IMODE(status.st_mode))
    except OSError:
        return False
    return True


def copy_attributes(path: Path, new: Path) -> None:
    """Set a new file's extended attributes to those of another, and remove others; raise OSError if that fails."""
    attributes = read_attributes(path)
    for name, value in attributes.items():
        if read_attributes(new).get(name) != value:
            os.setxattr(new, name, value)
    for name in read_attributes(new).keys() - attributes.keys():
        os.removexattr(new, name)


def read_attributes(path: Path) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return {}
        raise


def inherit_group(new: Path, parent: Path) -> None:
    """Give a new file the group of its folder if the folder has the setgid bit; errors are ignored."""
    status = os.stat(parent)
    if status.st_mode & stat.S_ISGID:
        with contextlib.suppress(OSError):
            os.chown(new, -1, status.st_gid)  # -1: the owner stays


def read_content(path: Path) -> bytes | None:
    """Return the content of a plain file; None for a missing file, a link, a folder or a device."""
    try:
        return read_plain_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP):
            return None
        raise


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a plain file; "" if there is none."""
    data = read_content(path)
    return "" if data is None else digest(data)
