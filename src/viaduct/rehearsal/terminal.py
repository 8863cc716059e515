"""Terminal of a rehearsed script: 80 by 24, with an empty stdin.

Scripts read its size (`stty size`, `os.get_terminal_size`) to draw a progress bar, and some fail without one. stdin is
a pseudo-terminal, which programs that the script starts inherit; a read from it returns end of file at once. stdout and
stderr are not changed.
"""

from __future__ import annotations

import fcntl
import functools
import os
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COLUMNS, LINES = 80, 24
ENDS = 256  # end-of-file characters in stdin: the number of reads that end at once


@contextmanager
def open_terminal() -> Iterator[int]:
    """Yield the file descriptor that a script gets as its stdin."""
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        settings: list[Any] = termios.tcgetattr(theirs)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        os.write(ours, settings[6][termios.VEOF] * ENDS)
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def install() -> None:
    """Wrap os.get_terminal_size, so that it returns 80 by 24 where stdin, stdout or stderr is no terminal."""
    plain = os.get_terminal_size

    @functools.wraps(plain)
    def get_terminal_size(fd: int = 1, /) -> os.terminal_size:
        try:
            return plain(fd)
        except OSError:
            if fd not in (0, 1, 2):
                raise
            return os.terminal_size((COLUMNS, LINES))

    os.get_terminal_size = get_terminal_size
