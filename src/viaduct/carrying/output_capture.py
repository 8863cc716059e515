"""Output of a run and of all its processes, which is shown on the terminal and saved to a file."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 16  # bytes
LINE_ENDS = re.compile(rb"([\r\n])")


@contextmanager
def capture_output(path: Path, label: str) -> Iterator[None]:
    """Send stdout and stderr of the block, and of processes that it starts, to this process's stderr and to a file.

    On stderr each line begins with the label: original and migrated script print nearly the same.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    stdout, stderr = os.dup(1), os.dup(2)  # what file descriptors 1 and 2 stand for outside of the block
    copier = threading.Thread(target=copy_output, args=(reading, stderr, path, label), daemon=True)
    copier.start()
    try:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        copier.join(timeout=10)  # seconds; a process that the script left running may keep the pipe open
        os.close(stdout)
        os.close(stderr)


def copy_output(reading: int, terminal: int, path: Path, label: str) -> None:
    """Copy the pipe `reading` to a file, and with labels to `terminal`, until all processes have closed the pipe."""
    labelled = LineLabeller(label)
    with open(path, "wb", buffering=0) as file:
        while chunk := os.read(reading, CHUNK):
            file.write(chunk)
            os.write(terminal, labelled.add(chunk))
    os.write(terminal, labelled.finish())
    os.close(reading)


class LineLabeller:
    """Adds a label to every line of a stream, chunk by chunk; a progress bar that is drawn again is a new line."""

    def __init__(self, label: str) -> None:
        self._label = f"{label} | ".encode()
        self._last = b"\n"  # the last part of the stream: a line feed, a carriage return, or text

    def add(self, chunk: bytes) -> bytes:
        """Return the chunk with a label wherever a line begins."""
        labelled = b""
        for part in filter(None, LINE_ENDS.split(chunk)):
            is_blank_line = part == self._last == b"\n"
            begins_line = self._last in (b"\n", b"\r") and part not in (b"\n", b"\r")
            labelled += self._label + part if is_blank_line or begins_line else part
            self._last = part
        return labelled

    def finish(self) -> bytes:
        """Return a line feed if the stream does not end with one."""
        return b"" if self._last == b"\n" else b"\n"
