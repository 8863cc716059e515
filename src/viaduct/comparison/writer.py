"""Tensors to disk from a thread of its own, while the step goes on.

A step's folder is written beside its place and renamed when it is complete: what has its name is whole. The run waits
only when more than `LIMIT` bytes are on their way, and at the end of the step. What goes wrong in the thread is raised
there, in the run.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from viaduct.comparison.index import Entry, Index, write_index
from viaduct.comparison.tally import CHUNK, Tally
from viaduct.errors import DiskFull, ViaductError

LIMIT = (
    1 << 28
)  # bytes of tensors on their way to the disk: enough to keep it busy, and their memory is soon used again
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Job:
    entry: Entry
    size: int
    fetch: Callable[[], npt.NDArray[Any]]  # waits for the device's copy, where there is one


class Writer:
    """Writes the tensors of one step."""

    def __init__(self, place: Path, limit: int = LIMIT) -> None:
        self.place = place
        self.temporary = place.with_name(f".{place.name}.part")
        self.limit = limit
        self._jobs: deque[Job] = deque()
        self._change = threading.Condition()
        self._pending = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        with self.named(self.temporary):
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.temporary.mkdir(parents=True)
        self._thread = threading.Thread(target=self._work, name="viaduct dump", daemon=True)
        self._thread.start()

    def put(self, entry: Entry, size: int, fetch: Callable[[], npt.NDArray[Any]]) -> None:
        """Hand over one tensor; waits while too much is on its way. One tensor is always taken, however large."""
        with self._change:
            while self._pending and self._pending + size > self.limit and self._failure is None:
                self._change.wait()
            if self._failure is None:
                self._jobs.append(Job(entry, size, fetch))
                self._pending += size
                self._change.notify_all()

    def wait(self) -> None:
        """Until all is on the disk; what went wrong on the way is raised here."""
        self._join()
        if self._failure is not None:
            self._clear()
            raise self._failure

    def finish(self, index: Index) -> None:
        """Write the index, and give the folder its name."""
        with self.named(self.temporary):
            write_index(self.temporary, index)
            move_into_place(self.temporary, self.place)

    def abandon(self) -> None:
        """The step did not end: nothing of it stays."""
        with self._change:
            self._jobs.clear()
        self._join()
        self._clear()

    def _join(self) -> None:
        with self._change:
            self._closing = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _clear(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                with self.named(self.temporary / str(job.entry.file)):
                    write_tensor(self.temporary, job)
            except BaseException as error:
                self._fail(error)
                return
            size = job.size
            del job  # its memory goes before its bytes count as free
            with self._change:
                self._pending -= size
                self._change.notify_all()

    def _next(self) -> Job | None:
        with self._change:
            while not self._jobs and not self._closing:
                self._change.wait()
            return self._jobs.popleft() if self._jobs else None

    def _fail(self, error: BaseException) -> None:
        with self._change:
            self._failure = error
            self._jobs.clear()
            self._pending = 0
            self._change.notify_all()

    @contextlib.contextmanager
    def named(self, path: Path) -> Iterator[None]:
        """What the disk refuses, with the file's name."""
        try:
            yield
        except OSError as error:
            kind = DiskFull if error.errno in NO_ROOM else ViaductError
            hints = ["Free some space, or dump less: fewer steps, a pattern, or statistics only."]
            what = f"the dump cannot be written: {path}: {error.strerror}."
            raise kind(what, *(hints if kind is DiskFull else [])) from error


def write_tensor(folder: Path, job: Job) -> None:
    """The array as .npy, with its checksum and statistics."""
    array = job.fetch()
    head = header(array)
    body = array.reshape(-1).view(np.uint8).data
    job.entry.bytes = len(head) + len(body)
    job.entry.crc32 = zlib.crc32(head)
    with np.errstate(all="ignore"):
        look_through(job.entry, array)
    with open(folder / str(job.entry.file), "wb", buffering=0) as file:
        make_room(file.fileno(), job.entry.bytes)
        file.write(head)
        written = 0
        while written < len(body):  # a raw write may take less than it is given
            written += file.write(body[written:]) or 0


def look_through(entry: Entry, array: npt.NDArray[Any]) -> None:
    """Checksum and statistics in one pass: each part is read from memory once."""
    flat, tally = array.reshape(-1), Tally(entry.dtype)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        entry.crc32 = zlib.crc32(part.view(np.uint8).data, entry.crc32)
        tally.add(part)
    entry.statistics.update(tally.result())


def make_room(file: int, size: int) -> None:
    """A file whose size is known beforehand is written a third faster; not every file system can."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise


def header(array: npt.NDArray[Any]) -> bytes:
    text, form = io.BytesIO(), cast(Any, np.lib.format)
    form.write_array_header_1_0(text, form.header_data_from_array_1_0(array))
    return text.getvalue()


def move_into_place(temporary: Path, place: Path) -> None:
    """What was there before (a step done twice after a resume) goes."""
    old = place.with_name(f".{place.name}.old")
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(place, old)
    os.rename(temporary, place)
    shutil.rmtree(old, ignore_errors=True)
