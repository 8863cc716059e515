"""Merge the findings of the rule torch.operators: one for each message about an operator, listing all its lines.

The merged finding replaces the first of them; the others are removed, also from the counted places of their files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from viaduct.migration.findings import Finding
from viaduct.migration.results import FileResult

OPERATORS_RULE = "torch.operators"
MAX_LISTED_PLACES = 5
"""Maximum number of places that the message of a merged finding lists."""


def merge_operator_findings(results: Iterable[FileResult]) -> list[FileResult]:
    """Return the results of all files with the findings about operators merged."""
    files = list(results)
    groups: defaultdict[str, list[tuple[FileResult, Finding]]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        for finding in file.findings:
            if finding.rule == OPERATORS_RULE:
                groups[finding.message].append((file, finding))
    merged: dict[tuple[str, int, str], Finding] = {}
    for message, group in groups.items():
        _, first = group[0]
        merged[first.file, first.line, message] = merge_findings(group)
    return [replace_findings(file, merged) for file in files]


def merge_findings(group: list[tuple[FileResult, Finding]]) -> Finding:
    """Return the first finding of a group with the places of all in its message, at most MAX_LISTED_PLACES."""
    _, first = group[0]
    if len(group) == 1:
        return first
    listed = ", ".join(file.locate(finding.line) for file, finding in group[:MAX_LISTED_PLACES])
    unlisted = len(group) - MAX_LISTED_PLACES
    english = f"{len(group)} places: {listed}" + (f" and {unlisted} more" if unlisted > 0 else "")
    chinese = f"共 {len(group)} 处:{listed}" + (" 等" if unlisted > 0 else "")
    return replace(first, message=f"{first.message} ({english})", message_zh=f"{first.message_zh}({chinese})")


def replace_findings(file: FileResult, merged: dict[tuple[str, int, str], Finding]) -> FileResult:
    """Replace the first finding about each operator by the merged one; remove the others and their places."""
    findings: list[Finding] = []
    removed: set[tuple[int, str]] = set()
    for finding in file.findings:
        replacement = merged.get((finding.file, finding.line, finding.message))
        if finding.rule != OPERATORS_RULE:
            findings.append(finding)
        elif replacement is None:
            removed.add((finding.line, finding.message))
        elif replacement not in findings:  # the operator may be used twice in the first line
            findings.append(replacement)
    places = tuple(place for place in file.places if (place.line, place.message) not in removed)
    return replace(file, findings=tuple(findings), places=places)
