"""Output of a run: shown on the terminal and kept in a file, whichever process writes it."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 16
ENDS = re.compile(rb"([\r\n])")


@contextmanager
def capture_output(path: Path, label: str) -> Iterator[None]:
    """Send stdout and stderr of the block, and of processes that it starts, to the terminal's stderr and to a file.

    stdout is kept for the results of the verb. On the terminal each line begins with the label, since both sides print
    the same lines; the file has the text without labels.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    streams = [os.dup(1), os.dup(2)]
    copier = threading.Thread(target=copy, args=(reading, streams[1], path, label), daemon=True)
    copier.start()
    try:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
        copier.join(timeout=10)  # seconds; a process that the script has left behind may still hold the pipe open
        for stream in streams:
            os.close(stream)


def copy(reading: int, terminal: int, path: Path, label: str) -> None:
    """Copy a pipe to a file, and with labels to the terminal, until all its writers have closed it."""
    labelled = Labelled(label)
    with open(path, "wb", buffering=0) as file:
        while chunk := os.read(reading, CHUNK):
            file.write(chunk)
            os.write(terminal, labelled.add(chunk))
    os.write(terminal, labelled.finish())
    os.close(reading)


class Labelled:
    """Puts a label before every line of a stream that arrives in chunks; a redrawn progress bar counts as a line."""

    def __init__(self, label: str) -> None:
        self._label = f"{label} | ".encode()
        self._last = b"\n"  # a line end, a carriage return, or text

    def add(self, chunk: bytes) -> bytes:
        return b"".join(self._parts(chunk))

    def _parts(self, chunk: bytes) -> Iterator[bytes]:
        for part in filter(None, ENDS.split(chunk)):
            is_blank = part == self._last == b"\n"
            if is_blank or (self._last in (b"\n", b"\r") and part not in (b"\n", b"\r")):
                yield self._label
            yield part
            self._last = part

    def finish(self) -> bytes:
        """Return the line end that the stream lacks, so that the next message begins a new line."""
        return b"" if self._last == b"\n" else b"\n"
