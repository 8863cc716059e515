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
    """Return the results of all files, sorted by path, with the findings about operators merged."""
    files = sorted(results, key=lambda file: file.path)
    locations: defaultdict[str, list[str]] = defaultdict(list)  # message -> its locations in all files
    for file in files:
        for finding in file.findings:
            if finding.rule == OPERATORS_RULE:
                locations[finding.message].append(file.locate(finding.line))
    return [keep_first_findings(file, locations) for file in files]


def keep_first_findings(file: FileResult, locations: dict[str, list[str]]) -> FileResult:
    """Keep the first finding with each message, and add the locations of all; remove the others and their places.

    Messages that were handled are removed from `locations`.
    """
    findings: list[Finding] = []
    kept: set[tuple[int, str]] = set()
    removed: set[tuple[int, str]] = set()
    for finding in file.findings:
        if finding.rule != OPERATORS_RULE:
            findings.append(finding)
        elif finding.message in locations:
            findings.append(add_locations(finding, locations.pop(finding.message)))
            kept.add((finding.line, finding.message))
        else:
            removed.add((finding.line, finding.message))
    places = tuple(place for place in file.places if (place.line, place.message) not in removed - kept)
    return replace(file, findings=tuple(findings), places=places)


def add_locations(finding: Finding, locations: list[str]) -> Finding:
    """Return the finding with the locations in its message, at most MAX_LISTED_PLACES; a single one is not added."""
    if len(locations) == 1:
        return finding
    listed = ", ".join(locations[:MAX_LISTED_PLACES])
    unlisted = len(locations) - MAX_LISTED_PLACES
    english = f"{len(locations)} places: {listed}" + (f" and {unlisted} more" if unlisted > 0 else "")
    chinese = f"共 {len(locations)} 处:{listed}" + (" 等" if unlisted > 0 else "")
    return replace(finding, message=f"{finding.message} ({english})", message_zh=f"{finding.message_zh}({chinese})")
