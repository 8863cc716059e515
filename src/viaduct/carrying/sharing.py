"""What both runs share though they should not: full paths among the arguments that the first run writes to.

A relative path is each run's own. Under a full one the second run may find the checkpoints of the first and go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

LOOKED_AT = 2000  # files and folders below a path


def newest(arguments: Sequence[str]) -> dict[str, float]:
    """Full paths that are given, and when something there was last written; 0: there is nothing."""
    values = (word.partition("=")[2] or word for word in arguments)
    return {value: last_written(Path(value)) for value in values if os.path.isabs(value)}


def last_written(path: Path) -> float:
    times = [entry.lstat().st_mtime for entry in islice(below(path), LOOKED_AT) if os.path.lexists(entry)]
    return max(times, default=0.0)


def below(path: Path) -> Iterator[Path]:
    if path.exists():
        yield path
    for root, folders, files in os.walk(path):
        yield from (Path(root) / name for name in (*folders, *files))


def written_since(before: dict[str, float]) -> list[str]:
    return [value for value, time in before.items() if last_written(Path(value)) > time]
