"""A migration on the terminal: the diff with what changed within its lines, findings grouped, one line of summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from viaduct.migration.diffing import Piece, Row, around, compare
from viaduct.migration.findings import RISK, Finding, Status
from viaduct.migration.run import FileResult, Outcome
from viaduct.migration.summary import headline, plural, summarise
from viaduct.migration.walk import shown

TITLES: dict[Status, str] = {
    "changed": "Changed",
    "advice": "Advice, not needed",
    "manual": "Left for a person, the riskiest first",
}
STYLES = {"high": "bold red", "medium": "yellow", "low": "dim"}
PLACES = 6
"""So many places of one finding are named."""
SKIPPED = 10


def make_console() -> Console:
    """Long lines are not broken: they are code, and may be read by a program."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def show_diffs(console: Console, outcome: Outcome) -> None:
    for file in outcome.changed:
        for line in diff_lines(file):
            console.print(line)


def diff_lines(file: FileResult) -> list[Text]:
    lines = [Text(f"--- {shown(file.path)}", "bold"), Text(f"+++ {shown(file.path)}", "bold")]
    hunk: list[Row] = []
    for row in [*around(compare(file.old, file.new, file.stems), set()), 0]:
        if not isinstance(row, int):
            hunk.append(row)
        elif hunk:
            lines += hunk_lines(hunk)
            hunk = []
    return lines


def hunk_lines(hunk: Sequence[Row]) -> list[Text]:
    """As `diff -u` writes it: what goes before what comes, change by change."""
    old, new = [row.old for row in hunk if row.old], [row.new for row in hunk if row.new]
    head = f"@@ -{span(old)} +{span(new)} @@"
    lines = [Text(head, "cyan")]
    gone: list[Text] = []
    come: list[Text] = []
    for row in hunk:
        if row.kind == "same":
            lines += [*gone, *come, Text(f" {row.old_text}")]
            gone, come = [], []
            continue
        if row.old:
            gone.append(side("-", row.left, "red"))
        if row.new:
            come.append(side("+", row.right, "green"))
    return [*lines, *gone, *come]


def span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]},{len(numbers)}" if numbers else "0,0"


def side(sign: str, pieces: Sequence[Piece], colour: str) -> Text:
    line = Text(sign, colour)
    for piece in pieces:
        line.append(piece.text, f"{colour} reverse" if piece.marked and piece.text.strip() else colour)
    return line


def show_findings(console: Console, outcome: Outcome, language: str) -> None:
    for status, title in TITLES.items():
        groups = grouped(outcome, status, language)
        if not groups:
            continue
        console.print(Text(f"\n{title}", "bold"))
        for (risk, rule, message), places in groups.items():
            mark = Text(f"  {risk:<6} " if status == "manual" else "  ", STYLES[risk])
            console.print(mark + Text(rule, "cyan") + Text(f"  {message}"))
            more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
            console.print(Text(f"    {', '.join(places[:PLACES])}{more}", "dim"))


def grouped(outcome: Outcome, status: Status, language: str) -> dict[tuple[str, str, str], list[str]]:
    """(risk, rule, message) -> places, in the order of risk and then of rules."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    chosen = [finding for finding in outcome.findings if finding.status == status]
    for finding in sorted(chosen, key=lambda one: rank(one, status)):
        place = shown(outcome.where(finding))
        places = groups[finding.risk, finding.rule, finding.text(language)]
        if place not in places:
            places.append(place)
    return groups


def rank(finding: Finding, status: Status) -> tuple[object, ...]:
    return (RISK[finding.risk] if status == "manual" else 0, finding.rule, finding.order)


def show_skipped(console: Console, outcome: Outcome) -> None:
    skipped = outcome.walk.skipped
    if not skipped:
        return
    console.print(Text("\nLeft out", "bold"))
    for one in skipped[:SKIPPED]:
        console.print(Text(f"  {shown(one.path)}: {one.reason}"))
    if len(skipped) > SKIPPED:
        console.print(Text(f"  and {len(skipped) - SKIPPED} more; --json lists all"))


def show_summary(console: Console, outcome: Outcome) -> None:
    summary = summarise(outcome)
    console.print(Text(f"\n{headline(summary)}.", "bold"))
    for reason in summary.reasons:
        console.print(Text(f"  - {reason}", "dim"))
    looked = f"{plural(summary.files, 'file')}, {plural(summary.lines, 'line')} in {outcome.seconds:.2f} s"
    console.print(Text(f"  {looked}", "dim"))
