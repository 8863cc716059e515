"""Notes about operators, gathered: one for each operator and project, with the count and the first places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from viaduct.migration.findings import Finding

if TYPE_CHECKING:
    from viaduct.migration.run import FileResult

RULE = "torch.operators"
SHOWN = 5
"""Places that a note names."""


def gather_notes(results: Iterable[FileResult]) -> list[FileResult]:
    """Keep the first note about each operator, with the places of the others in its text."""
    files = list(results)
    groups: defaultdict[str, list[tuple[FileResult, Finding]]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        for finding in file.findings:
            if finding.rule == RULE:
                groups[finding.message].append((file, finding))
    notes = {(item[0][1].file, item[0][1].line, message): with_count(item) for message, item in groups.items()}
    return [
        thin_out(file, notes) if any(candidate.rule == RULE for candidate in file.findings) else file for file in files
    ]


def with_count(found: list[tuple[FileResult, Finding]]) -> Finding:
    first = found[0][1]
    if len(found) == 1:
        return first
    listed = ", ".join(file.where(finding.line) for file, finding in found[:SHOWN])
    more = len(found) - SHOWN
    english = f"{len(found)} places: {listed}" + (f" and {more} more" if more > 0 else "")
    chinese = f"共 {len(found)} 处:{listed}" + (" 等" if more > 0 else "")
    return replace(first, message=f"{first.message} ({english})", message_zh=f"{first.message_zh}({chinese})")


def thin_out(file: FileResult, notes: dict[tuple[str, int, str], Finding]) -> FileResult:
    """Drop the notes, and the places of the ledger, that the first note about an operator stands for."""
    kept: list[Finding] = []
    gone: set[tuple[int, str]] = set()
    for finding in file.findings:
        note = notes.get((finding.file, finding.line, finding.message))
        if finding.rule != RULE:
            kept.append(finding)
        elif note is not None and note not in kept:
            kept.append(note)
        elif note is None:
            gone.add((finding.line, finding.message))
    entries = tuple(entry for entry in file.places if (entry.line, entry.message) not in gone)
    return replace(file, findings=tuple(kept), places=entries)
