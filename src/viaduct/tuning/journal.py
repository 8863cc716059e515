"""Measurements of an unfinished search, each a line of a file, so that kill -9 loses none.

A searcher (tuning/search) that is given the same times asks for the same configurations. So a search that was
interrupted begins again, and takes times from the journal instead of measuring them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.tuning.bank import Bank, Choice
from viaduct.tuning.fingerprint import Fingerprint
from viaduct.tuning.signature import Signature

FOLDER = "journal"


@dataclass(frozen=True)
class Journal:
    """The journal of one operator on one device."""

    path: Path
    key: str  # of the operator's signature; each line has it, since a file's name has a checksum only

    @classmethod
    def of(cls, bank: Bank, fingerprint: Fingerprint, signature: Signature) -> Journal:
        folder = bank.path / FOLDER / fingerprint.file_name.removesuffix(".json")
        return cls(folder / f"{signature.kind}_{zlib.crc32(signature.key.encode()):08x}.jsonl", signature.key)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the measurements, by `encode_point` of the configuration; lines that are no JSON are skipped.

        A process that was killed while it wrote leaves such a line.
        """
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
        """Add a measurement; it is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": self.key, "point": dict(point), **result})
        with self.path.open("a") as file:
            file.write(f"\n{line}\n" if self.ends_amid_line() else f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def ends_amid_line(self) -> bool:
        """Return True if the file's last line has no end: a process was killed while it wrote."""
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # the file does not exist, or is empty
            return False

    def remove(self) -> None:
        """Delete the journal, once the result of the search is in the bank."""
        self.path.unlink(missing_ok=True)


def encode_point(point: Choice) -> str:
    """Return a configuration as a text by which equal ones are recognised."""
    return json.dumps(dict(point), sort_keys=True)
