"""Terminal of a rehearsed script: 80 by 24, with an empty stdin.

Scripts read the terminal's size (`stty size`, `os.get_terminal_size`) to draw a progress bar, and some fail without a
terminal. So stdin is a pseudo-terminal, also in programs that the script starts; each of its first 256 reads returns
end of file. stdout and stderr are not changed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from viaduct.rehearsal.wrapping import wrap

COLUMNS, LINES = 80, 24
END_OF_FILE_COUNT = 256  # end-of-file characters in stdin; as many reads return at once
LOCAL_FLAGS, CONTROL_CHARACTERS = 3, 6  # positions in the list of termios.tcgetattr


@contextmanager
def open_terminal() -> Iterator[int]:
    """Yield the file descriptor that a script gets as its stdin."""
    controller, terminal = os.openpty()
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        settings: list[Any] = termios.tcgetattr(terminal)
        settings[LOCAL_FLAGS] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, settings)
        os.write(controller, settings[CONTROL_CHARACTERS][termios.VEOF] * END_OF_FILE_COUNT)
        yield terminal
    finally:
        os.close(controller)
        os.close(terminal)


def install() -> None:
    """Wrap os.get_terminal_size to return 80 by 24 if stdin, stdout or stderr is no terminal."""

    @wrap(os, "get_terminal_size")
    def get_terminal_size(plain: Any, fd: int = 1, /) -> Any:
        try:
            return plain(fd)
        except OSError:
            if fd not in (0, 1, 2):
                raise
            return os.terminal_size((COLUMNS, LINES))
