"""How often each line that the migration changed was executed. Nothing is proved of a line that was never executed.

Added and changed lines are counted in the migrated script, removed lines in the original.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.carrying.sides import Side, Sides
from viaduct.migration.diffing import AlignedLine, Piece
from viaduct.migration.source import lines_of
from viaduct.rehearsal import counters
from viaduct.rehearsal.counters import ChangedUnits, Span
from viaduct.rehearsal.plan import Plan
from viaduct.scripts.notebook_runs import is_notebook, locate_line, read_source


@dataclass(frozen=True)
class Edit:
    """A changed line and the number of its executions in all processes."""

    side: Side  # the side whose file has the line
    file: str
    line: int
    text: str
    count: int  # executions of the part of the line that was executed least
    cell: str = ""  # in a notebook: the cell and the line within it
    parts: tuple[int, ...] = ()  # executions of each changed part, such as the branches of a conditional expression
    earlier: str = ""  # output folder of an earlier carry that executed what this one did not

    @property
    def is_executed(self) -> bool:
        return bool(self.count or self.earlier)

    @property
    def place(self) -> str:
        """Return FILE:LINE, or the file and the notebook's cell."""
        return f"{self.file} {self.cell}" if self.cell else f"{self.file}:{self.line}"


def iterate_spans(rows: list[AlignedLine], side: Side) -> Iterator[Span]:
    """Yield a file's changed spans: removed lines of the original; added lines and changed parts of the migrated."""
    for row in rows:
        if side == "original":
            if row.kind == "removed" and row.old:
                yield Span(row.old)
        elif row.new and row.kind == "added":
            yield Span(row.new)
        elif row.new and row.kind == "changed":
            yield from iterate_marked_spans(row, row.new)


def iterate_marked_spans(row: AlignedLine, line: int) -> Iterator[Span]:
    """Yield the changed parts of a line, which the diff marks.

    If more parts were removed than added, or none was added, the whole line is one span.
    """
    removed, added = (sum(map(is_marked, pieces)) for pieces in (row.old_pieces, row.new_pieces))
    if added < removed or not added:
        yield Span(line)
        return
    column = 0
    for piece in row.new_pieces:
        if is_marked(piece):
            yield Span(line, column, column + len(piece.text))
        column += len(piece.text)


def is_marked(piece: Piece) -> bool:
    """Return True if the other side does not have this part of a line, and it is not blank."""
    return piece.marked and bool(piece.text.strip())


def find_changed_code(tree: Path, sides: Sides, side: Side) -> dict[str, tuple[list[Span], ChangedUnits]]:
    """Return for each file its changed spans, and the units of code (such as statements) whose executions are counted.

    The result has the .py files and the entry (which may be a notebook), as far as they can be parsed.
    """
    changed_code = {}
    for path, rows in sides.diffs.items():
        spans = list(iterate_spans(rows, side))
        file = tree / path
        if not spans or not is_counted(path, sides) or not file.is_file():
            continue
        data = read_source(file, file.read_bytes())
        try:
            text = counters.decode(data)
            units = counters.find_changed_units(ast.parse(data), text, spans)
        except (SyntaxError, ValueError, LookupError, RecursionError):
            continue
        changed_code[path] = spans, units
    return changed_code


def is_counted(path: str, sides: Sides) -> bool:
    """Return True for a changed file whose lines are counted: a .py file, or the entry."""
    return path.endswith(".py") or path == sides.entry


def request_counts(plan: Plan, sides: Sides, side: Side) -> None:
    """Save the changed spans of a side in its record, from which the run reads what to count."""
    changed_code = find_changed_code(Path(plan.source_tree), sides, side)
    spans = {path: spans for path, (spans, _) in changed_code.items()}
    counters.save_changed_spans(
        plan.record_folder, spans, {path: len(changed.units) for path, (_, changed) in changed_code.items()}
    )


def read_edits(plan: Plan, sides: Sides, side: Side) -> list[Edit]:
    """Return the changed lines of one side that hold code, with their counts."""
    # The counts of all files' units, in the order of the files; empty if the run counted nothing.
    counts = counters.read_counts(plan.record_folder)
    edits, offset = [], 0  # `offset`: the index of a file's first count
    for path, (_, changed) in find_changed_code(Path(plan.source_tree), sides, side).items():
        file = Path(plan.source_tree) / path
        lines = lines_of(counters.decode(read_source(file, file.read_bytes())))
        for line, units in sorted(changed.unit_indices_by_line.items()):
            parts = tuple(counts[offset + unit] if counts else 0 for unit in units)
            cell = locate_line(file, line).removeprefix(f"{file} ") if is_notebook(path) else ""
            edits.append(Edit(side, path, line, lines[line - 1].strip(), min(parts, default=0), cell, parts))
        offset += len(changed.units)
    return edits


def as_record(edits: list[Edit]) -> list[dict[str, Any]]:
    return [
        {"side": edit.side, "file": edit.file, "line": edit.line, "text": edit.text, "executed": edit.count}
        | ({"parts": list(edit.parts)} if len(edit.parts) > 1 else {})
        | ({"executed_in": edit.earlier} if edit.earlier else {})
        for edit in edits
    ]
