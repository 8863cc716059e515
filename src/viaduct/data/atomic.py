"""Files that are there whole or not at all, however the process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from viaduct.errors import BadData
from viaduct.path_errors import refuse_replacing_special_file

LEFTOVERS = ".*.part"
"""What a killed process leaves behind, as a pattern."""


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well, and vanishes when it does not.

    `durable` waits until the disk has it, so that even a power cut leaves the old file or the whole new one.
    """
    refuse_replacing_special_file(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder against other builds and fetches; the lock ends with the process, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BadData(f"{folder}: another process is writing to this folder.", "Wait for it to end.") from error
            # Some network file systems have no locks; two at once then waste each other's time, and are noticed.
        yield
    finally:
        os.close(descriptor)
