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


def put(line: str, stream: IO[str] | None = None) -> None:
    """Print a line, standard output being the usual place; if it cannot be, go on without."""
    out = stream if stream is not None else sys.stdout
    try:
        print(escape_controls(line, keep="\n\t"), file=out, flush=True)
    except OSError as error:
        lead_nowhere(out)
        if not isinstance(error, BrokenPipeError) and out is not sys.stderr:
            put(f"standard output cannot be written ({error.strerror}); going on without.", sys.stderr)


def lead_nowhere(stream: IO[str]) -> None:
    """What is still held back, and whatever comes, is dropped: an interpreter that ends writes out what it holds."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
