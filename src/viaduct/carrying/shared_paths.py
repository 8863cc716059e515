"""Paths that both sides share by mistake: absolute paths among the arguments that change while the original runs.

Each run has its own working folder, so relative paths are not shared. At an absolute one the migrated script may find
the original's checkpoints and resume from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from viaduct.rehearsal.files import split_arguments

MAX_ENTRIES = 2000  # files and folders, at and below a path, whose times are read


def find_change_times(arguments: Sequence[str]) -> dict[str, float]:
    """Return the absolute paths among the arguments, with the time of the last change (0: the path does not exist)."""
    return {value: find_last_change(Path(value)) for value in split_arguments(arguments) if os.path.isabs(value)}


def find_last_change(path: Path) -> float:
    """Return the time of the last change at or below a path, among the first MAX_ENTRIES entries; 0 for no entry."""
    times = [entry.lstat().st_mtime for entry in islice(iterate_below(path), MAX_ENTRIES) if os.path.lexists(entry)]
    return max(times, default=0.0)


def iterate_below(path: Path) -> Iterator[Path]:
    if path.exists():
        yield path
    for root, folders, files in os.walk(path):
        yield from (Path(root) / name for name in (*folders, *files))


def find_changed_since(before: dict[str, float]) -> list[str]:
    """Return the paths that have changed since `before`, the result of `find_change_times`; any program counts."""
    return [value for value, time in before.items() if find_last_change(Path(value)) > time]
