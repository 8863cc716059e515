"""What a person should know of the data: lines on stderr, where talk goes, and errors in words."""

from __future__ import annotations

import sys
from collections.abc import Sequence

NAMED_AT_MOST = 10


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def tell_some(lines: Sequence[str], rest: str) -> None:
    """The first ten, and how many more there are."""
    for line in lines[:NAMED_AT_MOST]:
        tell(line)
    if len(lines) > NAMED_AT_MOST:
        tell(f"{len(lines) - NAMED_AT_MOST:,} {rest}")


def reason(error: Exception) -> str:
    """Why it failed, without the number and the path that Python puts around the reason."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
