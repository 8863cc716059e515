"""Reading of a file of lines to which another process appends: each line is read once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from viaduct.plain_files import open_plain_file

TAIL_BYTES = 64  # if the last bytes that were read have changed, the file was replaced
MAX_LINE_BYTES = 64 << 20  # reading ends at a longer line


@dataclass
class GrowingFile:
    """A file of lines, and how far it was read: up to `offset`, with `tail` as the last bytes before it."""

    path: Path | str
    on_restart: Callable[[], None]  # called before the first line is read, again if the file was replaced or removed
    inode: int = 0  # 0: there was no file
    offset: int = 0
    tail: bytes = b""

    def read_new_lines(self) -> Iterator[bytes]:
        """Yield each line that was completed since the last call; nothing if the file cannot be opened."""
        try:
            file = open_plain_file(self.path)
        except OSError:
            self._restart(0)
            return
        with file:
            status = os.fstat(file.fileno())
            file.seek(max(0, self.offset - len(self.tail)))
            is_same = status.st_ino == self.inode and status.st_size >= self.offset
            if not is_same or file.read(len(self.tail)) != self.tail:
                self._restart(status.st_ino)
                file.seek(0)
            while (line := file.readline(MAX_LINE_BYTES)).endswith(b"\n"):
                self.offset += len(line)
                self.tail = (self.tail + line)[-TAIL_BYTES:]
                yield line

    def _restart(self, inode: int) -> None:
        if self.inode or inode:
            self.on_restart()
        self.inode, self.offset, self.tail = inode, 0, b""
