"""Print a migration on the terminal: the diff with changes marked within lines, grouped findings, and a summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from viaduct.migration.diffing import (
    AlignedLine,
    Piece,
    compare_texts,
    find_hunks,
    order_hunk_rows,
    render_hunk_header,
    render_patch,
)
from viaduct.migration.findings import RISK_ORDER, UNFINISHED_STATUSES, Status
from viaduct.migration.ledger import STATES, LedgerRow, list_column_titles
from viaduct.migration.results import FileResult, Outcome
from viaduct.migration.summary import headline, plural, summarise
from viaduct.migration.walk import SkippedPath, printable_path, printable_text

STATUS_TITLES: dict[Status, str] = {
    "changed": "Changed",
    "advice": "Advice",
    "manual": "Manual review needed, the riskiest first",
    "unresolved": "Could not be resolved",
}
STYLES = {"high": "bold red", "medium": "yellow", "low": "dim"}
MAX_LOCATIONS = 6
"""Maximum number of locations that are listed for one message."""
MAX_PATHS = 10
"""Maximum number of unread or skipped paths that are listed."""


def make_console() -> Console:
    """Return a console that does not break long lines."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def show_diffs(console: Console, outcome: Outcome) -> None:
    """Print the changes in colour on a terminal; write a patch to a pipe or a file."""
    if not console.is_terminal:
        write_patch(console.file, outcome)
        return
    for file in outcome.files_to_write:
        for line in render_diff(file):
            console.print(line)


def write_patch(stream: IO[str], outcome: Outcome) -> None:
    """Write the changes as a patch with the bytes of the files; a text stream gets escapes for bytes beyond UTF-8."""
    stream.flush()
    for file in outcome.files_to_write:
        patch = render_patch(file)
        if hasattr(stream, "buffer"):
            stream.buffer.write(patch)
        else:
            stream.write(patch.decode(errors="backslashreplace"))
    stream.flush()


def render_diff(file: FileResult) -> list[Text]:
    """Return the changes of a file as coloured lines."""
    old = printable_path(file.path) if file.before else "/dev/null"
    lines = [Text(f"--- {old}", "bold"), Text(f"+++ {printable_path(file.path)}", "bold")]
    for hunk in find_hunks(compare_texts(file.old_text, file.new_text, file.original_lines)):
        lines.append(Text(render_hunk_header(hunk), "cyan"))
        lines += [RENDER_ROW[sign](row) for sign, row in order_hunk_rows(hunk)]
    return lines


def render_side(sign: str, pieces: Sequence[Piece], colour: str) -> Text:
    """Return one line of a diff, with the pieces that differ from the other side in reverse video."""
    line = Text(sign, colour)
    for piece in pieces:
        line.append(printable_text(piece.text), f"{colour} reverse" if piece.marked and piece.text.strip() else colour)
    return line


RENDER_ROW: dict[str, Callable[[AlignedLine], Text]] = {
    " ": lambda row: Text(f" {printable_text(row.old_text)}"),
    "-": lambda row: render_side("-", row.old_pieces, "red"),
    "+": lambda row: render_side("+", row.new_pieces, "green"),
}


def show_findings(console: Console, outcome: Outcome, language: str) -> None:
    for status, title in STATUS_TITLES.items():
        groups = group_findings(outcome, status, language)
        if not groups:
            continue
        console.print(Text(f"\n{title}", "bold"))
        for (risk, rule, message), locations in groups.items():
            shown_risk = Text(f"  {risk:<6} " if status in UNFINISHED_STATUSES else "  ", STYLES[risk])
            console.print(shown_risk + Text(rule, "cyan") + Text(f"  {printable_text(message)}"))
            remainder = f" and {len(locations) - MAX_LOCATIONS} more" if len(locations) > MAX_LOCATIONS else ""
            console.print(Text(f"    {', '.join(locations[:MAX_LOCATIONS])}{remainder}", "dim"))


def group_findings(outcome: Outcome, status: Status, language: str) -> dict[tuple[str, str, str], list[str]]:
    """Return (risk, rule, message) -> locations, sorted by rule; those for manual review by risk first."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    findings = [finding for finding in outcome.findings if finding.status == status]
    by_risk = status in UNFINISHED_STATUSES
    for finding in sorted(findings, key=lambda item: (RISK_ORDER[item.risk] if by_risk else 0, item.rule, item.order)):
        location = printable_path(outcome.locate(finding))
        locations = groups[finding.risk, finding.rule, finding.message_in(language)]
        if location not in locations:
            locations.append(location)
    return groups


def show_unread(console: Console, outcome: Outcome, language: str) -> None:
    if outcome.unread:
        count = plural(len(outcome.unread), "path")
        console.print(Text(f"Incomplete: {count} not read or not understood; what they need is not known.", "bold red"))
        show_paths(console, outcome.unread, language)


def show_skipped(console: Console, outcome: Outcome, language: str) -> None:
    skipped = [path for path in outcome.walk.skipped if path.is_deliberate]
    if skipped:
        console.print(Text("\nLeft out", "bold"))
        show_paths(console, skipped, language)


def show_paths(console: Console, paths: Sequence[SkippedPath | FileResult], language: str) -> None:
    for path in paths[:MAX_PATHS]:
        console.print(Text(f"  {printable_path(path.path)}: {printable_text(path.reason_in(language))}"))
    if len(paths) > MAX_PATHS:
        console.print(Text(f"  and {len(paths) - MAX_PATHS} more; --json lists all"))


def show_ledger(console: Console, ledger: list[LedgerRow], language: str) -> None:
    """Print the table of requirements, with the number of places of the project in each state."""
    if not ledger:
        return
    titles = list_column_titles(language)
    width = max(cell_len(row.title_in(language)) for row in ledger)
    console.print(Text("\nRequirements" if language != "zh" else "\n迁移要求", "bold"))
    console.print(Text(f"  {' ' * width}  {'  '.join(titles)}", "dim"))
    for row in ledger:
        name = row.title_in(language)
        line = Text(f"  {name}{' ' * (width - cell_len(name))}")
        for column, state in zip(titles, ("needed", *STATES), strict=True):
            number = getattr(row, state)
            is_bad = number and state in ("manual", "unresolved")
            line.append(f"  {' ' * (cell_len(column) - len(str(number)))}{number}", "bold red" if is_bad else "")
        console.print(line)


def show_summary(console: Console, outcome: Outcome, language: str = "en") -> None:
    summary = summarise(outcome)
    show_ledger(console, summary.ledger, language)
    console.print(Text(f"\n{headline(summary)}.", "bold"))
    for file in outcome.helper_files:
        state = "there already" if not file.changed else "extended" if file.before else "new"
        console.print(Text(f"  {printable_path(file.path)} ({state}): scripts here import it; it needs only torch"))
    for reason in summary.reasons:
        console.print(Text(f"  - {reason}", "dim"))
    effort = f"{plural(summary.files, 'file')}, {plural(summary.lines, 'line')} in {outcome.seconds:.2f} s"
    console.print(Text(f"  {effort}", "dim"))
