"""Where a run's words go: standard output and standard error, whose readers may leave before the run does.

`viaduct train … | head -2` is a run that nobody watches any more, not one that should end: its lines are in its log
all the same. A stream that cannot be written to leads nowhere from then on, for everybody in the process.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO

from viaduct.terminal import escape_controls


def print_line(line: str, stream: IO[str] | None = None) -> None:
    """Print a line, on stdout by default; a stream that cannot be written is given up silently."""
    out = stream if stream is not None else sys.stdout
    try:
        print(escape_controls(line, keep="\n\t"), file=out, flush=True)
    except OSError as error:
        redirect_to_null(out)
        if not isinstance(error, BrokenPipeError) and out is not sys.stderr:
            print_line(f"standard output cannot be written ({error.strerror}); going on without.", sys.stderr)


def redirect_to_null(stream: IO[str]) -> None:
    """Send the stream to /dev/null, what is still buffered included: an interpreter that ends flushes its buffers."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
