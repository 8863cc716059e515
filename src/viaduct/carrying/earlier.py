"""Edits that an earlier carry of the same files has executed: `--earlier OUT`.

One command reaches one branch of `if args.resume:`, another the other one. An edit is proved by the run that executed
it, if everything that was compared there agreed. That holds only for the same files: every file of the project that
the earlier runs executed must still be what it was, byte for byte, on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from viaduct.carrying.coverage import Edit
from viaduct.carrying.output_folder import RECORD_FILE
from viaduct.errors import BadValue

Key = tuple[str, str, int, str]  # side, file, line and text of an edit


@dataclass(frozen=True)
class Earlier:
    """An earlier carry: its folder, its arguments, and how often it executed each edit."""

    folder: str
    arguments: list[str]
    executed: dict[Key, list[int]]  # of every edit the counts of its parts; 0 for a part that was not executed
    hashes: dict[str, dict[str, str]]  # by side, SHA-256 of the project's files that it executed


def read_earlier(folder: Path, out: Path, to: str, limits: str) -> Earlier:
    """Read an earlier carry; raise BadValue if it cannot be read or proves nothing about this one's edits.

    It must have the same target and limits, and no doubt but edits that were never executed.
    """
    flag = f"--earlier {folder}"
    if folder.resolve() == out.resolve():
        raise BadValue(f"{flag} is --out too.", "Give this carry another --out.")
    try:
        record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
        verdict, kinds = record["verdict"], {doubt["kind"] for doubt in record["not_proved"]}
        if not isinstance(verdict, str):
            raise TypeError(verdict)
        if record["to"] != to:
            raise BadValue(f"{flag} was carried to {record['to']}, this is for {to}.", f"Give one with --to {to}.")
        if verdict not in ("agrees", "not proved") or kinds - {"never executed"}:
            raise BadValue(
                f"{flag}: its verdict is {verdict!r}, so it proves nothing about its edits.",
                "An earlier carry counts if it agrees, or agrees but for edits that were never executed.",
            )
        if record["limits_mode"] != limits:
            raise BadValue(
                f"{flag} was carried with --limits {record['limits_mode']}, this one has {limits}.",
                "Give both the same --limits and --limit.",
            )
        return Earlier(str(folder), record["arguments"], read_executed(record), read_hashes(record))
    except OSError as error:
        advice = f"Give the --out of an earlier `viaduct carry`; it holds {RECORD_FILE}."
        raise BadValue(f"{flag}: {error.strerror}: {folder / RECORD_FILE}.", advice) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        what = f"{flag}: {folder / RECORD_FILE} is not what this version of carry writes."
        raise BadValue(what, "Carry it again.") from None


def read_executed(record: dict[str, Any]) -> dict[Key, list[int]]:
    """Return the counts of all edits of a record."""
    return {
        (edit["side"], edit["file"], edit["line"], edit["text"]): edit.get("parts", [edit["executed"]])
        for edit in record["edits"]
    }


def read_hashes(record: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the hashes of the files that each side executed."""
    return {
        side: {file["position"]: file["sha256"] for file in record["runs"][side]["modules"]}
        for side in ("original", "migrated")
    }


def refuse_changed_files(found: Iterable[Earlier], original: Path, migrated: Path) -> None:
    """Raise BadValue where a file that an earlier carry executed is another one now."""
    for earlier in found:
        for side, root in (("original", original), ("migrated", migrated)):
            changed = next(find_changed(earlier.hashes[side], root), None)
            if changed is not None:
                raise BadValue(
                    f"--earlier {earlier.folder}: {changed} of the {side} side is not the file that ran there.",
                    "Carry that command again with the files and flags of this one.",
                )


def find_changed(hashes: dict[str, str], root: Path) -> Iterator[str]:
    """Yield the files that are missing, or whose content is no longer what was executed."""
    for position, sha256 in hashes.items():
        path = root / position
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            yield position


def add_earlier(edits: list[Edit], found: Iterable[Earlier]) -> list[Edit]:
    """Set `earlier` of each edit that this carry did not execute, or not in all its parts."""
    return [edit if edit.count else replace(edit, earlier=find_folder(edit, found)) for edit in edits]


def find_folder(edit: Edit, found: Iterable[Earlier]) -> str:
    """Return the first earlier carry that executed a part this one did not; empty if a part remains unexecuted."""
    parts, first = list(edit.parts or (edit.count,)), ""
    for earlier in found:
        counts = earlier.executed.get((edit.side, edit.file, edit.line, edit.text), [])
        if len(counts) == len(parts) and any(count and not part for part, count in zip(parts, counts, strict=True)):
            first = first or earlier.folder
            parts = [part + count for part, count in zip(parts, counts, strict=True)]
    return first if all(parts) else ""
