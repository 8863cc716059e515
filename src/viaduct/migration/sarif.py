"""Encode a migration as SARIF 2.1.0, a format that editors and code-review sites show beside the lines.

A finding for manual review is a warning, with high risk an error; an unresolved finding is an error; changes and advice
are notes.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any
from urllib.parse import quote

from viaduct import __version__
from viaduct.migration.catalogue import link_to_rule, render_markdown
from viaduct.migration.findings import UNFINISHED_STATUSES, Finding
from viaduct.migration.results import Outcome
from viaduct.migration.rule import rules_by_name
from viaduct.terminal import escape_controls

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
"""Identifier of the format; nothing is downloaded."""
ENGINE_RULES = {
    "engine.unparsable": "A file or a notebook cell that cannot be decoded or parsed is copied as it is.",
    "engine.left_alone": "A file that is not analysed is copied as it is.",
    "engine.gpu_mention": "A file that is not Python names CUDA, NCCL or a tool for NVIDIA cards, and is not migrated.",
}


def as_sarif(outcome: Outcome, language: str = "en") -> str:
    return json.dumps(make_document(outcome, language), indent=1, ensure_ascii=False) + "\n"


def make_document(outcome: Outcome, language: str = "en") -> dict[str, Any]:
    findings = outcome.findings
    rules = sorted({finding.rule for finding in findings})
    run = {
        "tool": {
            "driver": {
                "name": "viaduct migrate",
                "version": __version__,
                "rules": [make_descriptor(rule) for rule in rules],
            }
        },
        "invocations": [make_invocation(outcome, language)],
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The folder that was migrated."}}},
        "columnKind": "unicodeCodePoints",
        "results": [make_result(outcome, finding, rules, language) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def make_invocation(outcome: Outcome, language: str) -> dict[str, Any]:
    """Return the invocation object: the command and the unread paths; it is unsuccessful if there are any."""
    notes = [
        {
            "level": "error",
            "message": {"text": f"{escape_controls(unread.path)}: {unread.reason_in(language)}"},
            "locations": [{"physicalLocation": {"artifactLocation": make_artifact(unread.path)}}],
        }
        for unread in outcome.unread
    ]
    return {
        "commandLine": outcome.command,
        "executionSuccessful": not notes,
        **({"toolExecutionNotifications": notes} if notes else {}),
    }


def make_artifact(path: str) -> dict[str, str]:
    return {"uri": quote(os.fsencode(path)), "uriBaseId": "%SRCROOT%"}


def make_descriptor(name: str) -> dict[str, Any]:
    """Return the reportingDescriptor of a rule or of a message of the engine."""
    rule = rules_by_name().get(name)
    doc = rule.doc if rule else ENGINE_RULES.get(name, "A message of the migration engine, not of a rule.")
    return {
        "id": name,
        "name": "".join(part.title() for part in name.replace(".", "_").split("_")),
        "shortDescription": {"text": doc.splitlines()[0]},
        "help": {"text": doc.strip(), "markdown": render_markdown(doc)},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"kind": rule.category if rule else "report", "doc": link_to_rule(name)},
    }


def find_level(finding: Finding) -> str:
    if finding.status not in UNFINISHED_STATUSES:
        return "note"
    return "error" if finding.status == "unresolved" or finding.risk == "high" else "warning"


def make_result(outcome: Outcome, finding: Finding, rules: list[str], language: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": make_artifact(finding.file)}
    if not outcome.by_path[finding.file].cells:  # a finding's line in a notebook is not a line of the .ipynb file
        location["region"] = {"startLine": finding.line, "endLine": finding.end_line}
    message = finding.message_in(language)
    text = message if "region" in location else f"{outcome.locate(finding)}: {message}"
    key = f"{finding.file}\0{finding.rule}\0{finding.before}\0{finding.message}"
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": find_level(finding),
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"viaductFinding/v1": hashlib.sha256(key.encode(errors="replace")).hexdigest()[:32]},
        "properties": {
            "status": finding.status,
            "kind": finding.category,
            "risk": finding.risk,
            "after": finding.after,
        },
    }
