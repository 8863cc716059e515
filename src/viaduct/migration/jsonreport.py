"""Encode a migration as JSON. The report contains no times: the same project and flags give the same bytes.

`places` lists the lines that a requirement of the target concerns, such as a session that needs NPU options;
`summary.ledger` counts them by requirement and state. Schema 2 has `summary.verdict` and `summary.ledger` instead of
`summary.confidence` of schema 1.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

from viaduct import __version__
from viaduct.migration.catalogue import link_to_rule
from viaduct.migration.findings import Finding
from viaduct.migration.ledger import Place
from viaduct.migration.results import FileResult, Outcome
from viaduct.migration.summary import summarise

SCHEMA = 2
"""Increased when a field changes its meaning or is removed; fields may be added without it."""


def as_json(outcome: Outcome, language: str = "en") -> str:
    return json.dumps(make_record(outcome, language), indent=1, ensure_ascii=False) + "\n"


def make_record(outcome: Outcome, language: str = "en") -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "tool": {"name": "viaduct", "version": __version__},
        "command": outcome.command,
        "options": asdict(outcome.options),
        "incomplete": [
            {"path": escape_path(unread.path), "reason": unread.reason_in(language)} for unread in outcome.unread
        ],
        "summary": asdict(summarise(outcome)),
        "files": [make_file_record(file, language) for file in outcome.files],
        **({"added": [make_added_record(file) for file in outcome.helper_files]} if outcome.helper_files else {}),
        "skipped": [
            {"path": escape_path(item.path), "reason": item.reason_in(language)} for item in outcome.walk.skipped
        ],
        "places": [make_place_record(place, language) for place in outcome.places],
        "findings": [make_finding_record(outcome, finding, language) for finding in outcome.findings],
    }


def escape_path(path: str) -> str:
    r"""Return a path with bytes that are not UTF-8 escaped as `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def make_file_record(file: FileResult, language: str) -> dict[str, Any]:
    state = "changed" if file.changed else "unread" if file.unread_reason else "unchanged"
    return {
        "path": escape_path(file.path),
        "state": state,
        "lines": file.line_count,
        "findings": len(file.findings),
        **({"reason": file.reason_in(language)} if file.unread_reason else {}),
    }


def make_added_record(file: FileResult) -> dict[str, Any]:
    """Return the record of a helper module of --to any; state "there": an existing file that needs no change."""
    state = "there" if not file.changed else "extended" if file.before else "added"
    return {"path": escape_path(file.path), "state": state, "text": file.new_text}


def make_place_record(place: Place, language: str) -> dict[str, Any]:
    message = place.message_in(language)
    return {
        "requirement": place.requirement,
        "file": escape_path(place.file),
        "line": place.line,
        "state": place.state,
        "what": place.excerpt,
        **({"message": message} if message else {}),
    }


def make_finding_record(outcome: Outcome, finding: Finding, language: str) -> dict[str, Any]:
    return {
        "file": escape_path(finding.file),
        "line": finding.line,
        "end_line": finding.end_line,
        "column": finding.column,
        "place": escape_path(outcome.locate(finding)),
        "rule": finding.rule,
        "kind": finding.category,
        "status": finding.status,
        "risk": finding.risk,
        "message": finding.message_in(language),
        "before": finding.before,
        "after": finding.after,
        "doc": link_to_rule(finding.rule),
    }
