"""Compare two texts line by line, and mark differences within changed lines.

The migration records from which original line each line of its result comes (`original_lines`). A line that equals its
original line is unchanged. The lines between two unchanged lines are one change. `render_patch` writes the changes of a
file for `git apply -p0` and `patch -p0`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from viaduct.migration.results import FileResult
from viaduct.migration.source import lines_of

if TYPE_CHECKING:
    from viaduct.reporting.diff_view import RowKind

WORD = re.compile(r"\w+|\s+|.")
QUOTED_BYTES = re.compile(rb'[\0-\x1f\x7f"\\]')
"""Bytes for which git quotes a path; octal escapes stand for them here."""
NO_NEWLINE_MARK = "\n\\ No newline at end of file\n"
CONTEXT_ROWS = 3
"""Number of unchanged rows that are shown before and after a change, as in a patch."""
MIN_SIMILARITY = 0.3
"""Two lines that are less similar are shown as a removal and an addition instead of a change."""
MAX_MARKED_CHARACTERS = 400
"""Differences within a longer line are not marked."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line, marked where it differs from the other side."""

    text: str
    marked: bool = False  # True: the other side does not have it


@dataclass(frozen=True, slots=True)
class AlignedLine:
    """One row of the comparison. `old` and `new`: line numbers from 1, None on a side without a line."""

    kind: RowKind  # same, changed, removed or added
    old: int | None
    new: int | None
    old_pieces: tuple[Piece, ...] = ()
    new_pieces: tuple[Piece, ...] = ()

    @property
    def old_text(self) -> str:
        return "".join(piece.text for piece in self.old_pieces)

    @property
    def new_text(self) -> str:
        return "".join(piece.text for piece in self.new_pieces)


def compare_texts(old: str, new: str, original_lines: Sequence[int]) -> list[AlignedLine]:
    """Compare two texts. `original_lines`: for each line of `new`, the line of `old`, from 1, from which it comes."""
    before, after = lines_of(old), lines_of(new)
    return align_lines(before, after, find_anchors(before, after, original_lines), original_lines)


def align_lines(
    before: Sequence[str], after: Sequence[str], pairs: Sequence[tuple[int, int]], original_lines: Sequence[int] = ()
) -> list[AlignedLine]:
    """Return the rows of two texts. Without `original_lines` no row is "changed".

    `pairs`: (index of the old line, index of the new line) of each pair of equal lines; both ascend.
    """
    rows: list[AlignedLine] = []
    next_old = next_new = 0
    for at_old, at_new in [*pairs, (len(before), len(after))]:
        rows += align_change(before, after, original_lines, range(next_old, at_old), range(next_new, at_new))
        if at_old < len(before):
            text = (Piece(before[at_old]),)
            rows.append(AlignedLine("same", at_old + 1, at_new + 1, text, text))
        next_old, next_new = at_old + 1, at_new + 1
    return rows


def find_anchors(before: Sequence[str], after: Sequence[str], original_lines: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs (old index, new index) of equal lines of which the new one comes from the old one; both ascend."""
    anchors: list[tuple[int, int]] = []
    last = -1
    for at_new, text in enumerate(after):
        at_old = original_lines[at_new] - 1 if at_new < len(original_lines) else -1
        if last < at_old < len(before) and before[at_old] == text:
            anchors.append((at_old, at_new))
            last = at_old
    return anchors


def align_change(
    before: Sequence[str], after: Sequence[str], original_lines: Sequence[int], old: range, new: range
) -> Iterator[AlignedLine]:
    """Yield the rows of one change. An old line and the most similar new line that comes from it are one row.

    `old` and `new`: indices of the changed lines in `before` and `after`.
    """
    pairs = pair_lines(before, after, original_lines, old, new)
    position = new.start
    for at_old in old:
        partner = pairs.get(at_old)
        if partner is None:
            yield AlignedLine("removed", at_old + 1, None, (Piece(before[at_old]),))
            continue
        for at_new in range(position, partner):
            yield AlignedLine("added", None, at_new + 1, (), (Piece(after[at_new]),))
        left, right = mark_differences(before[at_old], after[partner])
        yield AlignedLine("changed", at_old + 1, partner + 1, left, right)
        position = partner + 1
    for at_new in range(position, new.stop):
        yield AlignedLine("added", None, at_new + 1, (), (Piece(after[at_new]),))


def pair_lines(
    before: Sequence[str], after: Sequence[str], original_lines: Sequence[int], old: range, new: range
) -> dict[int, int]:
    """Return old line -> the most similar of the new lines that come from it. Both ascend.

    A line that is less similar than MIN_SIMILARITY has no partner.
    """
    pairs: dict[int, int] = {}
    first = new.start
    for at_old in old:
        similarities = {
            at_new: compute_similarity(before[at_old], after[at_new])
            for at_new in range(first, new.stop)
            if at_new < len(original_lines) and original_lines[at_new] == at_old + 1
        }
        best = max(similarities, key=similarities.__getitem__, default=-1)  # the first of equally similar ones
        if best >= 0 and similarities[best] >= MIN_SIMILARITY:
            pairs[at_old], first = best, best + 1
    return pairs


def compute_similarity(old: str, new: str) -> float:
    """Return the similarity of two lines, from 0 to 1, by their first MAX_MARKED_CHARACTERS characters."""
    if old.strip() == new.strip():
        return 1.0
    if not old.strip() or not new.strip():
        return 0.0
    first, second = (text.strip()[:MAX_MARKED_CHARACTERS] for text in (old, new))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def mark_differences(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return both lines in pieces, marked where they differ. A long line is one marked piece."""
    if max(len(old), len(new)) > MAX_MARKED_CHARACTERS:
        return (Piece(old, True),), (Piece(new, True),)
    first, second = WORD.findall(old), WORD.findall(new)
    left: list[Piece] = []
    right: list[Piece] = []
    for kind, begin, end, new_begin, new_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if begin < end:
            left.append(Piece("".join(first[begin:end]), kind != "equal"))
        if new_begin < new_end:
            right.append(Piece("".join(second[new_begin:new_end]), kind != "equal"))
    return tuple(left), tuple(right)


def omit_unchanged_rows(
    rows: Sequence[AlignedLine], lines_of_interest: Container[int] = ()
) -> Iterator[AlignedLine | int]:
    """Yield the rows without most of the unchanged ones; a number stands for that many omitted rows.

    Unchanged rows are kept in `lines_of_interest`, and within CONTEXT_ROWS rows of these and of a change.
    """
    matching = [index for index, row in enumerate(rows) if row.kind != "same" or row.old in lines_of_interest]
    kept_indices = {near for index in matching for near in range(index - CONTEXT_ROWS, index + CONTEXT_ROWS + 1)}
    for is_kept, group in groupby(enumerate(rows), key=lambda pair: pair[0] in kept_indices):
        if is_kept:
            yield from (row for _, row in group)
        else:
            yield sum(1 for _ in group)


def find_hunks(rows: Sequence[AlignedLine]) -> Iterator[list[AlignedLine]]:
    """Yield the hunks: changed rows with CONTEXT_ROWS rows around them."""
    hunk: list[AlignedLine] = []
    for row in [*omit_unchanged_rows(rows), 0]:  # a number, here 0, ends a hunk
        if not isinstance(row, int):
            hunk.append(row)
        elif hunk:
            yield hunk
            hunk = []


def render_hunk_header(hunk: Sequence[AlignedLine]) -> str:
    """Return the `@@` line of a hunk."""
    old, new = [row.old for row in hunk if row.old], [row.new for row in hunk if row.new]
    return f"@@ -{format_range(old)} +{format_range(new)} @@"


def format_range(numbers: Sequence[int]) -> str:
    """Return the first line and the number of lines, as in a hunk's header."""
    return f"{numbers[0]},{len(numbers)}" if numbers else "0,0"


def order_hunk_rows(hunk: Sequence[AlignedLine]) -> Iterator[tuple[Literal[" ", "-", "+"], AlignedLine]]:
    """Yield the rows of a hunk with their signs; in each change, removed lines come before added ones."""
    added: list[AlignedLine] = []
    for row in hunk:
        if row.kind == "same":
            yield from (("+", item) for item in added)
            added = []
            yield " ", row
            continue
        if row.old:
            yield "-", row
        if row.new:
            added.append(row)
    yield from (("+", item) for item in added)


def render_patch(file: FileResult) -> bytes:
    """Return the patch of one changed or new file.

    Its lines have the bytes and line ends of the file, so it applies whatever their encoding.
    """
    before, after = split_lines(file.before), split_lines(file.after)
    pairs = (
        match_equal_lines(before, after)
        if file.path.endswith(".ipynb")
        else find_anchors(before, after, file.original_lines)
    )
    name = quote_path(file.path)
    parts = [b"--- " + (name if file.before else b"/dev/null\n"), b"+++ " + name]
    for hunk in find_hunks(align_lines(before, after, pairs)):
        parts.append(f"{render_hunk_header(hunk)}\n".encode())
        for sign, row in order_hunk_rows(hunk):
            text = row.new_text if sign == "+" else row.old_text
            parts.append((sign + text + ("" if text.endswith("\n") else NO_NEWLINE_MARK)).encode("latin-1"))
    return b"".join(parts)


def split_lines(data: bytes) -> list[str]:
    """Split bytes into lines at line feeds, as a patch does; each character of a line stands for one byte."""
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("latin-1"))


def match_equal_lines(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Return pairs (old index, new index) of equal lines of an .ipynb file.

    `FileResult.original_lines` cannot be used: in a notebook they are lines of the code, not of the file.
    """
    blocks = SequenceMatcher(None, before, after).get_matching_blocks()
    return [(block.a + index, block.b + index) for block in blocks for index in range(block.size)]


def quote_path(path: str) -> bytes:
    """Return a path and a line end as git reads them: quoted if necessary, with a tab if the path has a blank."""
    raw = os.fsencode(path)
    if QUOTED_BYTES.search(raw):
        return b'"' + QUOTED_BYTES.sub(lambda found: b"\\%03o" % found[0][0], raw) + b'"\n'
    return raw + (b"\t\n" if b" " in raw else b"\n")
