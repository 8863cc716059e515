"""Reading of files in untrusted folders: a file that is a link, pipe or device is not opened.

Links among the folders of its path are followed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain_file(path: Path | str) -> BinaryIO:
    """Open a regular file for reading; raise OSError for everything else, including links."""
    require_plain(os.lstat(path), path)  # before opening, because opening a device may have an effect
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        require_plain(os.fstat(number), path)
    except OSError:
        os.close(number)
        raise
    return os.fdopen(number, "rb")


def require_plain(status: os.stat_result, path: Path | str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def read_plain_file(path: Path | str, max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file; raise OSError if it has more than `max_bytes`."""
    with open_plain_file(path) as file:
        try:
            data = file.read() if max_bytes is None else file.read(max_bytes + 1)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None  # an error of reading names no file
    if max_bytes is not None and len(data) > max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data
