"""Summarise a migration: figures, verdict, and one sentence.

A place is a line that a requirement of the target concerns, such as a session that needs NPU options. The ledger counts
them by requirement and state (ledger.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from viaduct.migration.findings import Finding, Status
from viaduct.migration.ledger import LedgerRow, count_places
from viaduct.migration.results import Outcome

STATUSES: tuple[Status, ...] = ("changed", "advice", "manual", "unresolved")
STATUS_WORDS: dict[Status, str] = {
    "changed": "changed",
    "advice": "advice",
    "manual": "manual review",
    "unresolved": "not resolved",
}
MAX_SHOWN_PACKAGES = 8
Verdict = Literal["complete", "incomplete", "nothing to change"]


@dataclass(frozen=True)
class Summary:
    """Figures of a migration. `asdict(summary)` is part of the JSON report."""

    files: int  # changed, unchanged and unread together
    lines: int
    changed: int  # files
    unchanged: int
    unread: int  # files that were not analysed: not Python, too large, too slow …
    skipped: int  # files and folders that the walk left out
    incomplete: int  # `unread`, and the `skipped` ones that could not be read
    excluded: int  # files left out by --exclude, which are copied as they are
    edits: int  # findings of status changed
    statuses: dict[Status, int]
    rules: dict[str, dict[Status, int]]
    risks: dict[str, int]  # of findings that need manual review or are unresolved
    ledger: list[LedgerRow]
    verdict: Verdict
    reasons: tuple[str, ...]  # sentences that explain or qualify the verdict


def summarise(outcome: Outcome) -> Summary:
    findings = outcome.findings
    statuses = Counter(finding.status for finding in findings)
    ledger = count_places(outcome.places)
    return Summary(
        files=len(outcome.files),
        lines=sum(file.line_count for file in outcome.files),
        changed=len(outcome.changed_files),
        unchanged=sum(1 for file in outcome.files if not file.changed and not file.unread_reason),
        unread=sum(1 for file in outcome.files if file.unread_reason),
        skipped=len(outcome.walk.skipped),
        incomplete=len(outcome.unread),
        edits=statuses["changed"],
        statuses={status: statuses[status] for status in STATUSES},
        rules=count_by_rule(findings),
        risks=dict(Counter(finding.risk for finding in outcome.unfinished_findings)),
        ledger=ledger,
        excluded=len(outcome.walk.excluded),
        verdict="incomplete" if outcome.options.only or outcome.options.mode == "patch" else judge(ledger),
        reasons=list_reasons(outcome, ledger),
    )


def count_by_rule(findings: list[Finding]) -> dict[str, dict[Status, int]]:
    counts = Counter((finding.rule, finding.status) for finding in findings)
    rules = sorted({finding.rule for finding in findings})
    return {rule: {status: counts[rule, status] for status in STATUSES} for rule in rules}


def judge(ledger: list[LedgerRow]) -> Verdict:
    """Return the verdict of a ledger: complete if no place needs manual review or is unresolved."""
    if not ledger:
        return "nothing to change"
    return "complete" if all(row.manual == row.unresolved == 0 for row in ledger) else "incomplete"


def list_reasons(outcome: Outcome, ledger: list[LedgerRow]) -> tuple[str, ...]:
    """Return the sentences that explain or qualify the verdict."""
    unresolved, manual = count_unfinished(ledger)
    risky = sum(1 for finding in outcome.findings if finding.status == "changed" and finding.risk != "low")
    unread = len(outcome.unread)
    patch = "--mode patch rewrites nothing: what the vendor's patch does when the script runs was not checked"
    excluded = len(outcome.walk.excluded)
    packages = outcome.other_packages
    more = len(packages) - MAX_SHOWN_PACKAGES
    listed = ", ".join(packages[:MAX_SHOWN_PACKAGES]) + (f" and {more} more" if more > 0 else "")
    return (
        *([patch] if outcome.options.mode == "patch" else []),
        *count_reason(excluded, "file was excluded and not analysed", "files were excluded and not analysed"),
        *(["only some rules were run (--only): nothing is known of the rest"] if outcome.options.only else []),
        *count_reason(unread, "path was not read or not understood", "paths were not read or not understood"),
        *count_reason(unresolved, "place could not be resolved", "places could not be resolved"),
        *count_reason(manual, "place needs manual review", "places need manual review"),
        *count_reason(risky, "edit is not of low risk: look at it", "edits are not of low risk: look at them"),
        *([f"the code of imported packages was not analysed: {listed}"] if packages else []),
        "the rewriting is static: nothing was run, so a run on the device is still to come",
    )


def count_unfinished(ledger: list[LedgerRow]) -> tuple[int, int]:
    """Return the number of unresolved places and of places that need manual review."""
    return sum(row.unresolved for row in ledger), sum(row.manual for row in ledger)


def count_reason(count: int, singular: str, plural: str) -> list[str]:
    return [f"{count} {singular if count == 1 else plural}"] if count else []


def headline(summary: Summary) -> str:
    """Return the summary in one sentence: the verdict, the number of unfinished places and of edits."""
    edits = f"{plural(summary.edits, 'edit')} in {plural(summary.changed, 'file')} of {summary.files}"
    unresolved, manual = count_unfinished(summary.ledger)
    remaining = [
        *([f"{plural(summary.incomplete, 'path')} not read"] if summary.incomplete else []),
        *([f"{plural(unresolved, 'place')} unresolved"] if unresolved else []),
        *([f"{plural(manual, 'place')} for manual review"] if manual else []),
    ]
    excluded = [f"{plural(summary.excluded, 'file')} excluded"] if summary.excluded else []
    return f"{summary.verdict}: {'; '.join([*remaining, *excluded, edits])}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
