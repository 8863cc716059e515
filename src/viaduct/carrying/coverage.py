"""Coverage of the migration's edits: how often each changed line was executed. A line that never ran is not proved.

Executions of added and changed lines are counted in the migrated script, those of removed lines in the original.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from viaduct.carrying.sides import Sides
from viaduct.migration.diffing import AlignedLine
from viaduct.rehearsal import counters
from viaduct.rehearsal.counters import ChangedUnits, Span
from viaduct.rehearsal.plan import Plan
from viaduct.scripts.notebook_runs import is_notebook, locate_line, read_source

Side = Literal["original", "migrated"]


@dataclass(frozen=True)
class Edit:
    """A changed line and the number of its executions in all processes."""

    side: Side  # the side whose file has the line
    file: str
    line: int
    text: str
    count: int  # executions of the part of the line that was executed least
    cell: str = ""  # of a notebook
    parts: tuple[int, ...] = ()  # executions of each changed part, such as the branches of a conditional expression
    earlier: str = ""  # the folder of an earlier carry that executed it, if this one did not

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
    """Yield the changed parts of a line (those that the diff marks); the whole line if text was removed as well."""
    column = 0
    removed, marked = (
        [piece for piece in pieces if piece.marked and piece.text.strip()] for pieces in (row.left, row.right)
    )
    if len(marked) < len(removed) or not marked:
        yield Span(line)
        return
    for piece in row.right:
        if piece in marked:
            yield Span(line, column, column + len(piece.text))
        column += len(piece.text)


def find_edited(tree: Path, sides: Sides, side: Side) -> dict[str, tuple[list[Span], ChangedUnits]]:
    """Return for each file its changed spans, and the units of code (such as statements) whose executions are counted.

    Only Python files that can be parsed, and the notebook, are in the result.
    """
    edited_files, entry = {}, sides.entry
    for path, rows in sides.diffs.items():
        spans = list(iterate_spans(rows, side))
        file = tree / path
        if not spans or not (path.endswith(".py") or path == entry) or not file.is_file():
            continue
        data = read_source(file, file.read_bytes())
        try:
            text = counters.decode(data)
            edited = counters.find_changed_units(ast.parse(data), text, spans)
        except (SyntaxError, ValueError, LookupError, RecursionError):
            continue
        edited_files[path] = spans, edited
    return edited_files


def save_spans_to_count(plan: Plan, sides: Sides, side: Side) -> None:
    """Save the changed spans of a side in the folder of its record: the run will count their executions."""
    edited_files = find_edited(Path(plan.source_tree), sides, side)
    spans = {path: spans for path, (spans, _) in edited_files.items()}
    counters.save_changed_spans(
        plan.record_folder, spans, {path: len(edited.units) for path, (_, edited) in edited_files.items()}
    )


def read_edits(plan: Plan, sides: Sides, side: Side) -> list[Edit]:
    """Return the changed lines of one side that hold code, with their counts."""
    counts = counters.read_counts(plan.record_folder)
    edits, offset = [], 0  # `counts` has one number for each unit, file by file; `offset`: a file's first
    for path, (_, edited) in find_edited(Path(plan.source_tree), sides, side).items():
        file = Path(plan.source_tree) / path
        lines = counters.decode(read_source(file, file.read_bytes())).splitlines()
        for line, numbers in sorted(edited.unit_indices_by_line.items()):
            parts = tuple(counts[offset + number] if counts else 0 for number in numbers)
            cell = locate_line(file, line).removeprefix(f"{file} ") if is_notebook(path) else ""
            edits.append(Edit(side, path, line, lines[line - 1].strip(), min(parts, default=0), cell, parts))
        offset += len(edited.units)
    return edits


def as_record(edits: list[Edit]) -> list[dict[str, Any]]:
    return [
        {"side": edit.side, "file": edit.file, "line": edit.line, "text": edit.text, "executed": edit.count}
        | ({"parts": list(edit.parts)} if len(edit.parts) > 1 else {})
        | ({"executed_in": edit.earlier} if edit.earlier else {})
        for edit in edits
    ]
