"""Terminal of a rehearsed script: 80 by 24, with an empty stdin.

Scripts ask for its size (`stty size`, `os.get_terminal_size`) to draw a progress bar, and some fail without one. stdin
is a pseudo-terminal, which the programs that the script starts inherit; reading from it ends at once. stdout and stderr
stay what they are, so that output is kept as it is printed.
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
ENDS = 256  # so many times a script may read from the terminal


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
    """Answer with the terminal's size where stdout is a pipe."""
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
