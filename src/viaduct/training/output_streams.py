"""Prints the lines of a run to stdout and stderr, whose readers may close them before the run ends.

`viaduct train … | head -2` does not end the run: its log lines are in RUN/log.txt all the same. A stream that cannot be
written is redirected to /dev/null, for the whole process.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO

from viaduct.terminal import escape_controls


def print_line(line: str, stream: IO[str] | None = None) -> None:
    """Print a line, on stdout by default; redirect a stream that cannot be written to /dev/null.

    stderr tells why stdout cannot be written, unless its reader has closed it.
    """
    out = stream if stream is not None else sys.stdout
    try:
        print(escape_controls(line, keep="\n\t"), file=out, flush=True)
    except OSError as error:
        redirect_to_null(out)
        if not isinstance(error, BrokenPipeError) and out is not sys.stderr:
            print_line(f"standard output cannot be written ({error.strerror}); going on without.", sys.stderr)


def redirect_to_null(stream: IO[str]) -> None:
    """Redirect the stream to /dev/null, with what is still buffered: Python flushes its buffers when it ends."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
