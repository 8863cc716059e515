"""Prints the lines of a run to stdout and stderr.

`viaduct train … | head -2` does not end the run when `head` ends, because the log lines also go to RUN/log.txt. A
stream that cannot be written is redirected to /dev/null, for the whole process.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO

from viaduct.terminal import escape_controls


def print_line(line: str, stream: IO[str] | None = None) -> None:
    """Print a line, on stdout by default; redirect a stream that cannot be written to /dev/null.

    The reason is printed on stderr, unless the reader has closed the stream.
    """
    out = stream if stream is not None else sys.stdout
    try:
        print(escape_controls(line, keep="\n\t"), file=out, flush=True)
    except OSError as error:
        redirect_to_null(out)
        if not isinstance(error, BrokenPipeError) and out is not sys.stderr:
            print_line(f"standard output cannot be written ({error.strerror}); going on without it.", sys.stderr)


def print_note(line: str) -> None:
    """Print a line for the user on stderr."""
    print_line(line, sys.stderr)


def redirect_to_null(stream: IO[str]) -> None:
    """Redirect the stream, including its buffered output, to /dev/null."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
