"""Writes tensors to disk in a thread while the step continues.

A step's folder is written under a temporary name and renamed when it is complete. The run waits only while more than
`max_pending_bytes` would be pending, and at the end of the step, where an error of the thread is raised.
"""

from __future__ import annotations

import contextlib
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

from viaduct.atomic_files import NO_ROOM, move_into_place, stage_folder
from viaduct.comparison.index import Entry, Index, write_index
from viaduct.comparison.naming import RANK_FOLDER
from viaduct.comparison.tensor_statistics import CHUNK, StatisticsAccumulator
from viaduct.errors import DiskFull, ViaductError

MAX_PENDING_BYTES = 1 << 28  # of tensors that wait for the disk: enough to keep it busy


@dataclass(frozen=True)
class Job:
    """One tensor to write."""

    entry: Entry
    size: int  # bytes
    fetch: Callable[[], npt.NDArray[Any]]  # returns the array, after waiting for a copy from the device


class Writer:
    """Writes the tensors of one step."""

    def __init__(self, folder: Path, max_pending_bytes: int = MAX_PENDING_BYTES) -> None:
        self.folder = folder
        self._staging_context = contextlib.ExitStack()
        self._staging = self._unfinished = folder  # temporary folders, set by `open`
        self.max_pending_bytes = max_pending_bytes
        self._jobs: deque[Job] = deque()
        self._change = threading.Condition()
        self._pending = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Create the temporary folder and start the thread."""
        with self.name_errors(self.folder):
            self._staging = self._staging_context.enter_context(stage_folder(self.folder))
            self._unfinished = self._staging / self.folder.name
            self._unfinished.mkdir()
        self._thread = threading.Thread(target=self._work, name="viaduct dump", daemon=True)
        self._thread.start()

    def put(self, entry: Entry, size: int, fetch: Callable[[], npt.NDArray[Any]]) -> None:
        """Hand over one tensor; wait while too many bytes are pending."""
        with self._change:
            while self._pending and self._pending + size > self.max_pending_bytes and self._failure is None:
                self._change.wait()
            if self._failure is None:
                self._jobs.append(Job(entry, size, fetch))
                self._pending += size
                self._change.notify_all()

    def wait(self) -> None:
        """Wait until everything is on disk; raise the thread's error, if there was one."""
        self._join()
        if self._failure is not None:
            self._staging_context.close()
            raise self._failure

    def finish(self, index: Index) -> None:
        """Write the index and rename the folder."""
        with self.name_errors(self.folder), self._staging_context:
            write_index(self._unfinished, index)
            if index.ranks > 1:
                remove_other_dumps(self.folder.parent, index.ranks)
            move_into_place(self._unfinished, self.folder, self._staging)

    def abandon(self) -> None:
        with self._change:
            self._jobs.clear()
        self._join()
        self._staging_context.close()

    def _join(self) -> None:
        """Let the thread finish its jobs, and wait for its end."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                with self.name_errors(self.folder / str(job.entry.file)):
                    write_tensor(self._unfinished, job)
            except BaseException as error:
                self._fail(error)
                return
            size = job.size
            del job  # free its memory before its bytes are subtracted
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
    def name_errors(self, path: Path) -> Iterator[None]:
        """Turn an OSError into a message that names the file."""
        try:
            yield
        except OSError as error:
            message = f"the dump cannot be written: {path}: {error.strerror}."
            if error.errno in NO_ROOM:
                hint = "Free some space, or dump less: fewer steps, a pattern, or statistics only."
                raise DiskFull(message, hint) from error
            raise ViaductError(message) from error


def remove_other_dumps(step_folder: Path, ranks: int) -> None:
    """Remove what dumps of one process or of more ranks left in a step's folder: it would be read with the new ranks.

    All ranks of the new dump do this, perhaps at the same time.
    """
    for path in list(step_folder.iterdir()):
        if path.is_file():
            path.unlink(missing_ok=True)
        elif (match := RANK_FOLDER.fullmatch(path.name)) and int(match[1]) >= ranks:
            shutil.rmtree(path, ignore_errors=True)


def write_tensor(folder: Path, job: Job) -> None:
    """Write the array as .npy, with its checksum and statistics."""
    array = job.fetch()
    head = make_npy_header(array)
    body = array.reshape(-1).view(np.uint8).data
    job.entry.bytes = len(head) + len(body)
    job.entry.crc32 = zlib.crc32(head)
    with np.errstate(all="ignore"):
        add_statistics(job.entry, array)
    with open(folder / str(job.entry.file), "wb", buffering=0) as file:
        reserve_space(file.fileno(), job.entry.bytes)
        file.write(head)
        written = 0
        while written < len(body):  # an unbuffered write may be partial
            written += file.write(body[written:]) or 0


def add_statistics(entry: Entry, array: npt.NDArray[Any]) -> None:
    """Set checksum and statistics in one pass over memory."""
    flat, tally = array.reshape(-1), StatisticsAccumulator(entry.dtype)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        entry.crc32 = zlib.crc32(part.view(np.uint8).data, entry.crc32)
        tally.add(part)
    entry.statistics.update(tally.result())


def reserve_space(file: int, size: int) -> None:
    """Preallocate a file if the file system can, which makes writing a third faster."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise


def make_npy_header(array: npt.NDArray[Any]) -> bytes:
    """Return the bytes before the elements of an array in a .npy file."""
    text, form = io.BytesIO(), cast(Any, np.lib.format)
    form.write_array_header_1_0(text, form.header_data_from_array_1_0(array))
    return text.getvalue()
