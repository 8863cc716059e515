"""The figures of a migration and the sentence that a manager reads: what was done, what is left, how sure we are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from viaduct.migration.findings import Finding, Status
from viaduct.migration.run import Outcome

STATUSES: tuple[Status, ...] = ("changed", "advice", "manual", "unresolved")
WORDS: dict[Status, str] = {
    "changed": "changed",
    "advice": "advice",
    "manual": "for a person",
    "unresolved": "not resolved",
}
Confidence = Literal["high", "medium", "low", "incomplete"]


@dataclass(frozen=True)
class Summary:
    files: int
    lines: int
    changed: int
    unchanged: int
    unread: int  # looked at, but not understood
    skipped: int
    incomplete: int  # files and folders of which nothing can be said: not read, not understood, left out
    edits: int  # findings of status changed
    statuses: dict[Status, int]
    rules: dict[str, dict[Status, int]]
    risks: dict[str, int]  # of what is left for a person
    confidence: Confidence
    reasons: tuple[str, ...]


def summarise(outcome: Outcome) -> Summary:
    findings = outcome.findings
    statuses = Counter(finding.status for finding in findings)
    unread = sum(1 for file in outcome.files if file.reason)
    confidence, reasons = judge(outcome)
    return Summary(
        files=len(outcome.files),
        lines=sum(file.line_count for file in outcome.files),
        changed=len(outcome.changed),
        unchanged=sum(1 for file in outcome.files if not file.changed and not file.reason),
        unread=unread,
        skipped=len(outcome.walk.skipped),
        incomplete=len(outcome.unread),
        edits=statuses["changed"],
        statuses={status: statuses[status] for status in STATUSES},
        rules=by_rule(findings),
        risks=dict(Counter(finding.risk for finding in outcome.by_risk)),
        confidence=confidence,
        reasons=reasons,
    )


def by_rule(findings: list[Finding]) -> dict[str, dict[Status, int]]:
    counts = Counter((finding.rule, finding.status) for finding in findings)
    rules = sorted({finding.rule for finding in findings})
    return {rule: {status: counts[rule, status] for status in STATUSES} for rule in rules}


def judge(outcome: Outcome) -> tuple[Confidence, tuple[str, ...]]:
    """Not a probability: what the text could show, and what it could not."""
    left = outcome.by_risk
    high = sum(1 for finding in left if finding.risk == "high")
    unread = len(outcome.unread)
    doubtful = sum(1 for finding in outcome.findings if finding.status == "changed" and finding.risk != "low")
    reasons = [
        *counted_reason(unread, "path was not read or not understood", "paths were not read or not understood"),
        *counted_reason(high, "place of high risk is left for a person", "places of high risk are left for a person"),
        *counted_reason(len(left) - high, "further place is left", "further places are left"),
        *counted_reason(doubtful, "edit is not of low risk: look at it", "edits are not of low risk: look at them"),
    ]
    confidence: Confidence = "low" if high else "medium" if left or doubtful else "high"
    if unread:
        confidence = "incomplete"
    if not reasons:
        reasons.append("every edit is low risk and nothing is left for a person")
    return confidence, (*reasons, "the rewriting is static: nothing was run, so a run on the device is still to come")


def counted_reason(count: int, one: str, many: str) -> list[str]:
    return [f"{count} {one if count == 1 else many}"] if count else []


def headline(summary: Summary) -> str:
    """One sentence."""
    done = f"{plural(summary.edits, 'edit')} in {plural(summary.changed, 'file')} of {summary.files}"
    manual = summary.statuses["manual"]
    left = f"{plural(manual, 'place')} left for a person" if manual else "nothing left for a person"
    if summary.incomplete:
        return f"incomplete: {plural(summary.incomplete, 'path')} not read; {done}" + (f"; {left}" if manual else "")
    return f"{done}; {left}; confidence {summary.confidence}"


def plural(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
