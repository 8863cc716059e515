"""Cache of the facts of runs, so that the next command reads only changed files.

The index is a file in the user's cache folder ($XDG_CACHE_HOME/viaduct/runs), one for each list of folders that were
searched. An entry is valid while the run's signature is the same: a list with inode, size and modification time of
each of its files, which JSON keeps as it is. A damaged index, or one of another version, is read as empty. Errors in
writing are ignored. The file is replaced atomically; of two processes that write at the same time, the later one wins.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viaduct import __version__
from viaduct.plain_files import read_plain_file
from viaduct.runs.facts import RunFacts
from viaduct.runs.metrics import MetricsDigest
from viaduct.runs.reading import Signature

FORMAT = 6
"""Version of the index; to be increased when `RunFacts` or `MetricsDigest` change."""
MAX_INDEX_BYTES = 512 << 20


@dataclass
class RunIndex:
    """Stored facts and metrics of the runs below the searched folders."""

    path: Path  # of the index file
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)  # by the path of the run directory
    changed: bool = False  # True if an entry was stored since the file was read

    def find(self, folder: str, signature: Signature) -> RunFacts | None:
        """Return the stored facts of a run; None if they are missing or its files have changed since."""
        entry = self.entries.get(folder)
        if entry is None or entry["signature"] != signature:
            return None
        return RunFacts(**entry["facts"])

    def find_digest(self, folder: str) -> MetricsDigest | None:
        """Return the stored digest of a run's metrics, to which `update_digest` adds the new lines; None if missing."""
        entry = self.entries.get(folder)
        return None if entry is None else MetricsDigest(*entry["digest"])

    def store(self, run: RunFacts, signature: Signature, digest: MetricsDigest) -> None:
        """Store the facts of a run, and the digest of its metrics as a list of the values of its fields."""
        entry = {"signature": signature, "facts": dict(vars(run)), "digest": list(vars(digest).values())}
        self.entries[run.path] = entry
        self.changed = True

    def write(self, found: set[str]) -> None:
        """Write the index if it has changed; only entries of `found`, the run directories that are there, are kept."""
        kept = {folder: entry for folder, entry in self.entries.items() if folder in found}
        if not self.changed and len(kept) == len(self.entries):
            return
        from viaduct.atomic_files import write_file

        try:
            body = json.dumps(kept, separators=(",", ":")).encode("ascii")
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_file(self.path, make_header(body) + body, durable=False)
        except (OSError, ValueError, RecursionError):
            return  # an older index stays, or none: the next command reads the files of more runs


def make_header(body: bytes) -> bytes:
    """Return the first line of an index: its format, viaduct's version, and a checksum of the body."""
    return f"viaduct runs {FORMAT} {__version__} {hashlib.sha256(body).hexdigest()}\n".encode()


def open_index(roots: list[Path]) -> RunIndex:
    """Return the index of the runs below these folders; an empty one if there is no usable file."""
    path = choose_index_path(roots)
    try:
        head, _, body = read_plain_file(path, MAX_INDEX_BYTES).partition(b"\n")
        entries = json.loads(body) if head + b"\n" == make_header(body) else {}
    except (OSError, ValueError, RecursionError, MemoryError):
        return RunIndex(path)
    return RunIndex(path, entries)


def choose_index_path(roots: list[Path]) -> Path:
    """Return the index file of these folders; relative and absolute ones have different files, like their runs."""
    key = "\0".join(f"{root}\0{os.path.abspath(root)}" for root in roots)
    name = hashlib.sha256(os.fsencode(key)).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return cache / "viaduct" / "runs" / f"{name}.json"
