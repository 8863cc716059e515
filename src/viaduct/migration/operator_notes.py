"""Merge the findings of the rule torch.operators, the notes: one for each operator, with the number of its places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from viaduct.migration.findings import Finding
from viaduct.migration.results import FileResult

OPERATORS_RULE = "torch.operators"
MAX_PLACES = 5
"""Maximum number of places that a note lists."""


def gather_notes(results: Iterable[FileResult]) -> list[FileResult]:
    """Keep the first note about each operator and add the places of the other notes about it to its message."""
    files = list(results)
    groups: defaultdict[str, list[tuple[FileResult, Finding]]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        for finding in file.findings:
            if finding.rule == OPERATORS_RULE:
                groups[finding.message].append((file, finding))
    notes: dict[tuple[str, int, str], Finding] = {}
    for message, group in groups.items():
        _, first = group[0]
        notes[first.file, first.line, message] = merge_notes(group)
    return [keep_first(file, notes) for file in files]


def merge_notes(notes: list[tuple[FileResult, Finding]]) -> Finding:
    """Return the first of several notes, with the first MAX_PLACES of their places in its message."""
    _, first = notes[0]
    if len(notes) == 1:
        return first
    listed = ", ".join(file.locate(finding.line) for file, finding in notes[:MAX_PLACES])
    remainder = len(notes) - MAX_PLACES
    english = f"{len(notes)} places: {listed}" + (f" and {remainder} more" if remainder > 0 else "")
    chinese = f"共 {len(notes)} 处:{listed}" + (" 等" if remainder > 0 else "")
    return replace(first, message=f"{first.message} ({english})", message_zh=f"{first.message_zh}({chinese})")


def keep_first(file: FileResult, notes: dict[tuple[str, int, str], Finding]) -> FileResult:
    """Replace the first note about each operator by the merged note; drop the others and their ledger entries."""
    merged: list[Finding] = []
    dropped: set[tuple[int, str]] = set()
    for finding in file.findings:
        note = notes.get((finding.file, finding.line, finding.message))
        if finding.rule != OPERATORS_RULE:
            merged.append(finding)
        elif note is not None and note not in merged:
            merged.append(note)
        elif note is None:
            dropped.add((finding.line, finding.message))
    places = tuple(place for place in file.places if (place.line, place.message) not in dropped)
    return replace(file, findings=tuple(merged), places=places)
