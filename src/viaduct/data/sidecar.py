"""Where a file's index is kept: beside the file, or in the user's cache where its folder may not be written to.

An index belongs to a file of one size and one time of change; of any other it is ignored. Two processes that write
the same one do no harm: each renames a whole file into place.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from viaduct.data.atomic import replacing

Table = npt.NDArray[np.int64]

SUFFIX = ".idx.npy"


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/viaduct/index, usually ~/.cache/viaduct/index."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "viaduct" / "index"


def places(file: Path) -> tuple[Path, Path]:
    """Beside the file, then in the cache, where the whole path is part of the name."""
    absolute = file.resolve()
    digest = hashlib.sha256(os.fsencode(absolute)).hexdigest()[:16]
    return file.with_name(file.name + SUFFIX), cache_folder() / f"{digest}-{file.name}{SUFFIX}"


def identity(file: Path) -> tuple[int, int]:
    """What an index is valid for: size in bytes, time of change in nanoseconds."""
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def load(place: Path) -> Table | None:
    """A stored table, memory-mapped; None if there is none that can be read."""
    try:
        table = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    return table if table.dtype == np.int64 and table.ndim == 2 else None


def store(file: Path, table: Table) -> Path | None:
    """Keep a table for next time; None if neither place can be written to, which only costs time."""
    for place in places(file):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with replacing(place, durable=False) as opened:
                np.save(opened, table)
        except OSError:
            continue
        return place
    return None
