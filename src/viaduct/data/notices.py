"""Notices on stderr, and helpers for the texts of messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence

MAX_PRINTED = 10  # so many notices of one kind are printed


def print_notice(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)


def print_first_notices(lines: Sequence[str], more: str) -> None:
    """Print the first MAX_PRINTED lines, then "N `more`" for the N that are left."""
    for line in lines[:MAX_PRINTED]:
        print_notice(line)
    if len(lines) > MAX_PRINTED:
        print_notice(f"{len(lines) - MAX_PRINTED:,} {more}")


def join_first(names: Sequence[str], most: int = 5) -> str:
    """Join the first names with commas, and say how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def describe_error(error: Exception) -> str:
    """Return the text of an error, without the error number and path of an `OSError`."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
