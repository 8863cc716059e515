"""Storage of the index of a record file: beside the file, or in the user's cache if the file's folder is not writable.

An index is a table of int64 in NumPy's format. Processes may write the same one at the same time, because each renames
a complete file into place.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from viaduct.atomic_files import replace_file
from viaduct.path_errors import refuse_special_file

Table = npt.NDArray[np.int64]

SUFFIX = ".idx.npy"
# The header of NumPy's format 1.0 for a table of int64, which `store` writes before the numbers.
HEADER_BYTES = 128
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00"
    rb"\{'descr': '<i8', 'fortran_order': False, 'shape': \(([0-9]{1,2}), ([0-9]{1,12})\), \} *\n"
)


def list_paths(file: Path) -> tuple[Path, Path]:
    """Return the two possible paths of an index: beside the file; in the cache, named by a digest of the file's path.

    The cache is $XDG_CACHE_HOME/viaduct/index, usually ~/.cache/viaduct/index.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]
    return file.with_name(file.name + SUFFIX), cache / "viaduct" / "index" / f"{digest}-{file.name}{SUFFIX}"


def load(path: Path) -> Table | None:
    """Return a stored table, memory-mapped; None if there is none, or the file was not written by `store`.

    The header is matched here, because `np.load` evaluates it as Python and raises arbitrary errors if it is damaged.
    """
    try:
        refuse_special_file(path)
        with path.open("rb") as file:
            size, head = os.fstat(file.fileno()).st_size, file.read(HEADER_BYTES)
    except OSError:
        return None
    match = HEADER.fullmatch(head)
    if match is None or size != HEADER_BYTES + 8 * int(match[1]) * int(match[2]):
        return None
    try:
        return np.memmap(path, np.int64, "r", HEADER_BYTES, (int(match[1]), int(match[2])))
    except (OSError, ValueError):  # the file has changed since
        return None


def store(file: Path, table: Table) -> None:
    """Store the index of a file at the first of its two paths that is writable; do nothing if none is."""
    for path in list_paths(file):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path, durable=False) as opened:
                np.save(opened, table)
        except OSError:
            continue
        return
