"""Parse a text again after edits, reusing the nodes of top-level statements that did not change or move.

Both trees then share nodes, which is safe because nothing modifies a node.
"""

from __future__ import annotations

import ast
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from viaduct.migration.source import LINE_END, Source, Unparsable, first_line, parse

if TYPE_CHECKING:
    from viaduct.migration.edits import Edit


def parse_edited(former: Source, edits: Sequence[Edit], text: str) -> Source:
    """Return the source of `text`, which `edits` made from the former source's text."""
    try:
        return Source(text, ast.Module(body=[*find_statements(former, edits, text)], type_ignores=[]), former)
    except Unparsable:
        return Source(text)  # raises Unparsable with the position in the complete text


def find_statements(former: Source, edits: Sequence[Edit], text: str) -> Iterator[ast.stmt]:
    """Yield the top-level statements of the new text, unchanged ones from the former source, others newly parsed."""
    touched, moved = find_touched_lines(former, edits)
    starts = [0, *(match.end() for match in LINE_END.finditer(text))]  # of the lines
    last = 0  # the line up to which statements were found
    for statement in find_unchanged(former.tree.body, touched, moved):
        first = first_line(statement)
        if has_number_between(touched, last + 1, first - 1):
            yield from parse_lines(text, starts, last, first - 1)
        yield statement
        last = last_line(statement)
    yield from parse_lines(text, starts, last, len(starts))


def has_number_between(numbers: list[int], first: int, last: int) -> bool:
    """Return True if one of the sorted numbers is in the range from `first` to `last`, inclusive."""
    position = bisect_left(numbers, first)
    return position < len(numbers) and numbers[position] <= last


def parse_lines(text: str, starts: list[int], after: int, upto: int) -> list[ast.stmt]:
    """Return the statements of the lines after the line `after`, up to and including the line `upto`."""
    if after >= len(starts):
        return []
    part = text[starts[after] : starts[upto] if upto < len(starts) else len(text)]
    return parse("\n" * after + part).body if part.strip() else []


def find_touched_lines(former: Source, edits: Sequence[Edit]) -> tuple[list[int], float]:
    """Return the lines of the former text that edits touch, and the first line after which line numbers changed."""
    touched: set[int] = set()
    moved = math.inf
    for edit in edits:
        first, last = former.line_of(edit.start), former.line_of(edit.end)
        touched.update(range(first, last + 1))
        if len(LINE_END.findall(edit.text)) != last - first:
            moved = min(moved, first)
    return sorted(touched), moved


def find_unchanged(statements: list[ast.stmt], touched: list[int], moved: float) -> Iterator[ast.stmt]:
    """Yield the statements that no edit touches or moves; statements that share a line are treated as one."""
    group: list[ast.stmt] = []
    for statement in [*statements, None]:
        if group and (statement is None or first_line(statement) > last_line(group[-1])):
            if last_line(group[-1]) < moved and not has_number_between(
                touched, first_line(group[0]), last_line(group[-1])
            ):
                yield from group
            group = []
        if statement is not None:
            group.append(statement)


def last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
