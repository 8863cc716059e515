"""HTML report of a migration: a summary, a table of the target's requirements, findings, and every changed line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from viaduct.migration.catalogue import get_summary
from viaduct.migration.diffing import AlignedLine, compare_texts, omit_unchanged_rows
from viaduct.migration.findings import Finding, Status
from viaduct.migration.ledger import STATES, list_column_titles
from viaduct.migration.results import FileResult, Outcome
from viaduct.migration.rule import rules_by_name
from viaduct.migration.summary import STATUS_WORDS, Summary, headline, plural, summarise
from viaduct.migration.walk import printable_path, printable_text
from viaduct.reporting import (
    Code,
    Comment,
    DiffFile,
    DiffRow,
    DiffView,
    Facts,
    Page,
    Part,
    Section,
    Table,
    Tile,
    write_page,
)

Tone = Literal["good", "bad", "warn", "muted"]
TONES: dict[Status, Tone] = {"changed": "good", "advice": "muted", "manual": "warn", "unresolved": "bad"}
IS_GOOD_VERDICT = {"complete": True, "nothing to change": None, "incomplete": False}  # None: shown without a colour


def write(outcome: Outcome, path: Path, language: str = "en") -> None:
    write_page(make_page(outcome, language), path)


def make_page(outcome: Outcome, language: str = "en") -> Page:
    summary = summarise(outcome)
    name = outcome.files[0].path if outcome.walk.is_single_script and outcome.files else outcome.root.resolve().name
    return Page(
        f"{printable_path(name)} to {outcome.options.to.upper()}",
        headline(summary)[0].upper() + headline(summary)[1:] + ".",
        make_tiles(summary),
        [
            *make_unread_section(outcome, language),
            make_overview(outcome, summary),
            *make_ledger_section(summary, language),
            make_review_section(outcome, summary, language),
            *make_changes_section(outcome, language),
            *make_rules_section(summary),
            *make_advice_section(outcome, language),
            *make_files_section(outcome, language),
        ],
        language=language,
        verb="migrate",
        kind="migration report",
    )


def make_tiles(summary: Summary) -> list[Tile]:
    """Return the figures at the top of the page."""
    total = {state: sum(getattr(row, state) for row in summary.ledger) for state in ("needed", *STATES)}
    unfinished = total["manual"] + total["unresolved"]
    return [
        Tile("edits", f"{summary.edits:,}", f"in {plural(summary.changed, 'file')} of {summary.files:,}"),
        Tile(
            "places concerned",
            f"{total['needed']:,}",
            f"{total['changed']:,} changed, {total['right']:,} already right",
        ),
        Tile(
            "places left",
            f"{unfinished:,}",
            f"{total['manual']:,} for manual review, {total['unresolved']:,} unresolved",
            good=None if unfinished else True,
        ),
        Tile("verdict", summary.verdict, summary.reasons[0], good=IS_GOOD_VERDICT[summary.verdict]),
    ]


def make_overview(outcome: Outcome, summary: Summary) -> Section:
    facts = {
        "target": outcome.options.to,
        "files": f"{summary.files:,}: {summary.changed:,} changed, {summary.unchanged:,} unchanged, "
        f"{summary.unread:,} not understood; {summary.skipped:,} left out",
        "verdict": f"{summary.verdict}: {'; '.join(summary.reasons)}",
        "started with": printable_path(outcome.entry) or "not known; see --entry",
    }
    text = "Edits are made where the text shows what is right; other places that were found are listed below."
    return Section("Summary", text, [Facts(facts), Code(printable_text(outcome.command), "The command")])


def make_table_section(title: str, text: str, columns: list[str], rows: Sequence[list[Any]]) -> list[Section]:
    """Return a section with a table; [] without rows."""
    return [Section(title, text, [Table(columns, list(rows))])] if rows else []


def make_unread_section(outcome: Outcome, language: str) -> list[Section]:
    rows = [[printable_path(unread.path), printable_text(unread.reason_in(language))] for unread in outcome.unread]
    text = "The migration is incomplete: these files and folders were not analysed."
    return make_table_section("Not read", text, ["path", "why"], rows)


def make_ledger_section(summary: Summary, language: str) -> list[Section]:
    titles = ["要求" if language == "zh" else "requirement", *list_column_titles(language)]
    rows: list[list[object]] = [
        [row.title_in(language), row.needed, row.changed, row.right, row.manual, row.unresolved]
        for row in summary.ledger
    ]
    text = (
        "Places that each requirement of the target concerns, and their states. A place that needs a change and could "
        "not be analysed is unresolved. The verdict is complete only if the last two columns are zero."
    )
    return make_table_section("Requirements", text, titles, rows)


def make_review_section(outcome: Outcome, summary: Summary, language: str) -> Section:
    rows = [
        [
            finding.risk,
            printable_path(outcome.locate(finding)),
            printable_text(finding.message_in(language)),
            finding.rule,
        ]
        for finding in outcome.unfinished_findings
    ]
    text = "The riskiest first." if rows else describe_empty_review(summary)
    parts: list[Part] = [Table(["risk", "place", "what to do", "rule"], rows)] if rows else []
    return Section("Manual review", text, parts)


def describe_empty_review(summary: Summary) -> str:
    """Return the text of the section if no finding needs manual review."""
    if summary.incomplete:
        paths = f"{plural(summary.incomplete, 'path')} could not be analysed"
        return f"Nothing in the files that were analysed needs manual review; {paths}, see Not read."
    if summary.verdict == "incomplete":
        return "No finding needs manual review, but the migration is incomplete: see Summary."
    return "Nothing needs manual review."


def make_changes_section(outcome: Outcome, language: str) -> list[Section]:
    files = make_diffs(outcome, language)
    return [Section("Changes", "Line by line: − before, + after.", [DiffView(files)])] if files else []


def make_rules_section(summary: Summary) -> list[Section]:
    rules = rules_by_name()
    rows = [
        [name, *counts.values(), get_summary(rules[name]) if name in rules else ""]
        for name, counts in summary.rules.items()
    ]
    columns = ["rule", *STATUS_WORDS.values(), "what it does"]
    return make_table_section("Rules", "docs/rules.md explains them, except engine.*.", columns, rows)


def make_advice_section(outcome: Outcome, language: str) -> list[Section]:
    findings = [finding for finding in outcome.findings if finding.status == "advice"]
    rows = [
        [printable_path(outcome.locate(item)), printable_text(item.message_in(language)), item.rule]
        for item in findings
    ]
    text = "What may run better, or is worth a look."
    return make_table_section("Advice", text, ["place", "advice", "rule"], rows)


def make_files_section(outcome: Outcome, language: str) -> list[Section]:
    rows: list[list[object]] = [
        [
            printable_path(file.path),
            describe_state(file),
            file.line_count,
            len(file.findings),
            printable_text(file.reason_in(language)),
        ]
        for file in [*outcome.files, *outcome.helper_files]
    ]
    skipped = outcome.walk.skipped
    rows += [[printable_path(path.path), "left out", None, None, path.reason_in(language)] for path in skipped]
    return make_table_section("Files", "", ["file", "state", "lines", "findings", "why"], rows)


def describe_state(file: FileResult) -> str:
    if file.changed:
        return "changed" if file.before else "new"
    return "not understood" if file.unread_reason else "unchanged"


def make_diffs(outcome: Outcome, language: str) -> list[DiffFile]:
    """Return the files with changes or findings: changed ones first, files that were not understood last."""
    reported = [file for file in [*outcome.files, *outcome.helper_files] if file.findings or file.changed]
    reported.sort(key=lambda file: (not file.changed, bool(file.unread_reason)))
    return [make_diff_file(file, language) for file in reported]


def make_diff_file(file: FileResult, language: str) -> DiffFile:
    by_line: dict[int, list[Finding]] = defaultdict(list)
    for finding in file.findings:
        by_line[finding.line].append(finding)
    if file.unread_reason:
        comments = [make_comment(file, finding, language) for finding in file.findings]
        return DiffFile(printable_path(file.path), [DiffRow("same", comments=comments)], "not analysed")
    shown = omit_unchanged_rows(compare_texts(file.old_text, file.new_text, file.original_lines), by_line)
    # A number stands for this many omitted rows.
    rows = [row if isinstance(row, int) else make_diff_row(file, row, by_line, language) for row in shown]
    state = describe_state(file)
    return DiffFile(printable_path(file.path), rows, "" if state == "changed" else state)


def make_diff_row(file: FileResult, row: AlignedLine, by_line: dict[int, list[Finding]], language: str) -> DiffRow:
    comments = [make_comment(file, finding, language) for finding in by_line.get(row.old or 0, ())]
    sides = (row.old_pieces, row.new_pieces)
    left, right = ([(printable_text(piece.text), piece.marked) for piece in side] for side in sides)
    return DiffRow(row.kind, row.old, row.new, left, right, comments)


def make_comment(file: FileResult, finding: Finding, language: str) -> Comment:
    tone: Tone = "bad" if finding.status == "manual" and finding.risk == "high" else TONES[finding.status]
    location = printable_path(file.locate(finding.line)) if file.cells else ""
    return Comment(
        printable_text(finding.message_in(language)), finding.rule, STATUS_WORDS[finding.status], tone, location
    )
