"""What a run says goes to the terminal and is kept, whichever of its processes says it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 16


@contextmanager
def kept_in(path: Path) -> Iterator[None]:
    """Within the block both streams are one: the terminal's stderr, and this file. stdout is for results."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    streams = [os.dup(1), os.dup(2)]
    copier = threading.Thread(target=copy, args=(reading, streams[1], path), daemon=True)
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
        copier.join(timeout=10)  # a process that the script has left behind may still hold the other end
        for stream in streams:
            os.close(stream)


def copy(reading: int, terminal: int, path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        while chunk := os.read(reading, CHUNK):
            file.write(chunk)
            os.write(terminal, chunk)
    os.close(reading)
