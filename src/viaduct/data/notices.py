"""Notices about the data on stderr, and helpers for messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence

NAMED_AT_MOST = 10


def print_notice(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)


def print_first_notices(lines: Sequence[str], more: str) -> None:
    """Print the first ten lines, and how many more there are."""
    for line in lines[:NAMED_AT_MOST]:
        print_notice(line)
    if len(lines) > NAMED_AT_MOST:
        print_notice(f"{len(lines) - NAMED_AT_MOST:,} {more}")


def join_first(names: Sequence[str], most: int = 5) -> str:
    """Join the first names with commas, and say how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def reason(error: Exception) -> str:
    """Return the text of an error, without the error number and path of an `OSError`."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
