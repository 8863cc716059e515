"""Store the measurements of an unfinished search, each as a line of a file, so that kill -9 loses none of them.

A searcher that receives the same times proposes the same configurations. So an interrupted search starts again and
takes the times from the journal instead of measuring them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.tuning.bank import Bank, Choice, encode_point
from viaduct.tuning.fingerprint import Fingerprint
from viaduct.tuning.signature import Signature

FOLDER = "journal"


@dataclass(frozen=True)
class Journal:
    """The journal of one operator on one device."""

    path: Path
    key: str  # key of the operator's signature; each line contains it, as the file's name has only a checksum

    @classmethod
    def of(cls, bank: Bank, fingerprint: Fingerprint, signature: Signature) -> Journal:
        """Return the journal of an operator in the bank's folder; its file need not exist."""
        folder = bank.path / FOLDER / fingerprint.file_name.removesuffix(".json")
        return cls(folder / f"{signature.kind}_{zlib.crc32(signature.key.encode()):08x}.jsonl", signature.key)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the measurements by `encode_point` of the configuration; damaged lines are skipped."""
        measurements = {}
        try:
            lines = self.path.read_text(errors="replace").splitlines()
        except OSError:
            return {}
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("key") == self.key and isinstance(record.get("point"), dict):
                measurements[encode_point(record["point"])] = record
        return measurements

    def append(self, point: Choice, result: Mapping[str, Any]) -> None:
        """Add a measurement and flush it to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": self.key, "point": dict(point), **result})
        with self.path.open("a") as file:
            file.write(f"\n{line}\n" if self.has_incomplete_line() else f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def has_incomplete_line(self) -> bool:
        """Return True if the last line has no line end, because a process was killed while it wrote."""
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # the file does not exist, or is empty
            return False

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
