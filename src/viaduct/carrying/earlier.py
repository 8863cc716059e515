"""Edits that an earlier carry of the same files has executed: `--earlier OUT`.

One command may execute one branch of `if args.resume:`, another command the other branch. An edit counts as executed if
an earlier carry executed it and everything that was compared there agreed. The files that the earlier carry executed
must be unchanged on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from viaduct.carrying.coverage import Edit
from viaduct.carrying.output_folder import RECORD_FILE
from viaduct.errors import BadValue

Key = tuple[str, str, int, str]  # side, file, line and text of an edit


@dataclass(frozen=True)
class EarlierCarry:
    """An earlier carry: its output folder, its arguments, and what it executed."""

    folder: str
    arguments: list[str]
    executed: dict[Key, list[int]]  # for each edit, the number of executions of each part
    hashes: dict[str, dict[str, str]]  # side -> executed file of the project -> SHA-256


def read_earlier(folder: Path, out: Path, to: str, limits: str) -> EarlierCarry:
    """Read an earlier carry; raise BadValue if it cannot be read, or if it proves nothing for this carry.

    It must have the same target and limits, and it must have agreed, apart from edits that were never executed.
    """
    flag = f"--earlier {folder}"
    if folder.resolve() == out.resolve():
        raise BadValue(f"{flag} is also --out.", "Give this carry another --out.")
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
                "An earlier carry counts if its only doubts are edits that were never executed.",
            )
        if record["limits_mode"] != limits:
            raise BadValue(
                f"{flag} was carried with --limits {record['limits_mode']}, this one has {limits}.",
                "Give both the same --limits and --limit.",
            )
        executed = {
            (edit["side"], edit["file"], edit["line"], edit["text"]): edit.get("parts", [edit["executed"]])
            for edit in record["edits"]
        }
        hashes = {
            side: {file["position"]: file["sha256"] for file in record["runs"][side]["modules"]}
            for side in ("original", "migrated")
        }
        return EarlierCarry(str(folder), record["arguments"], executed, hashes)
    except OSError as error:
        advice = f"Give the --out of an earlier `viaduct carry`; it holds {RECORD_FILE}."
        raise BadValue(f"{flag}: {error.strerror}: {folder / RECORD_FILE}.", advice) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        problem = f"{flag}: {folder / RECORD_FILE} is damaged, or was written by another version of carry."
        raise BadValue(problem, "Carry it again.") from None


def refuse_changed_files(carries: Iterable[EarlierCarry], original: Path, migrated: Path) -> None:
    """Raise BadValue if a file that an earlier carry executed has changed."""
    for earlier in carries:
        for side, root in (("original", original), ("migrated", migrated)):
            changed = next(find_changed(earlier.hashes[side], root), None)
            if changed is not None:
                raise BadValue(
                    f"--earlier {earlier.folder}: {changed} of the {side} side is not the file that ran there.",
                    "Carry that command again with the files and flags of this one.",
                )


def find_changed(hashes: dict[str, str], root: Path) -> Iterator[str]:
    for position, sha256 in hashes.items():
        path = root / position
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            yield position


def mark_executed_earlier(edits: list[Edit], carries: Iterable[EarlierCarry]) -> list[Edit]:
    """Return the edits; one that this carry did not execute wholly gets the folder of an earlier carry that helped."""
    return [edit if edit.count else replace(edit, earlier=find_executing_carry(edit, carries)) for edit in edits]


def find_executing_carry(edit: Edit, carries: Iterable[EarlierCarry]) -> str:
    """Return the folder of the first earlier carry that executed a part of the edit which this one did not.

    Return "" unless each part was executed by this carry or an earlier one.
    """
    parts, first = list(edit.parts or (edit.count,)), ""
    for earlier in carries:
        counts = earlier.executed.get((edit.side, edit.file, edit.line, edit.text), [])
        if len(counts) == len(parts) and any(count and not part for part, count in zip(parts, counts, strict=True)):
            first = first or earlier.folder
            parts = [part + count for part, count in zip(parts, counts, strict=True)]
    return first if all(parts) else ""
