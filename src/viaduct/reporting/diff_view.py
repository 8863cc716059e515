"""Files before and after, side by side: what changed within a line is marked, remarks stand under their lines.

All files of a page are one part, so that one filter serves them all. Style and script travel with the part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from markupsafe import Markup

from viaduct.reporting.page import own_file

RowKind = Literal["same", "changed", "removed", "added"]
OPEN_FILES = 20
"""So many files are unfolded at first; a browser lays out a thousand of them slowly."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A remark on a line: `group` and `state` are what the filter offers, `sign` goes with the colour of `tone`."""

    text: str
    group: str
    state: str
    tone: Literal["good", "bad", "warn", "muted"] = "muted"
    place: str = ""


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A side is pieces of text with their marks; a row without numbers has no lines, only comments on the file."""

    kind: RowKind
    old: int | None = None
    new: int | None = None
    left: Sequence[tuple[str, bool]] = ()
    right: Sequence[tuple[str, bool]] = ()
    comments: Sequence[Comment] = ()


@dataclass(frozen=True, slots=True)
class DiffFile:
    """`rows` may hold numbers: so many lines are left out there."""

    name: str
    rows: Sequence[DiffRow | int]
    note: str = ""

    @property
    def comments(self) -> list[Comment]:
        return [comment for row in self.rows if isinstance(row, DiffRow) for comment in row.comments]


@dataclass(frozen=True)
class DiffView:
    """Side-by-side differences of files, with comments."""

    template: ClassVar[str] = "diff_view.html"

    files: Sequence[DiffFile]

    def drawing(self) -> DiffDrawing:
        return DiffDrawing([draw_file(file, index < OPEN_FILES) for index, file in enumerate(self.files)])


@dataclass(frozen=True)
class FileDrawing:
    """One file as the template needs it."""

    name: str
    note: str
    unfolded: bool
    counts: str
    rows: Sequence[DiffRow | int]


@dataclass(frozen=True)
class DiffDrawing:
    """All files as the template needs them."""

    files: Sequence[FileDrawing]

    @property
    def style(self) -> Markup:
        return own_file("diff_view.css")

    @property
    def groups(self) -> list[str]:
        return sorted({comment.group for comment in self.comments})

    @property
    def states(self) -> list[str]:
        return list(dict.fromkeys(sorted(comment.state for comment in self.comments)))

    @property
    def comments(self) -> list[Comment]:
        rows = [row for file in self.files for row in file.rows if isinstance(row, DiffRow)]
        return [comment for row in rows for comment in row.comments]

    @staticmethod
    def is_gap(row: DiffRow | int) -> bool:
        return isinstance(row, int)


def draw_file(file: DiffFile, unfolded: bool) -> FileDrawing:
    states = Counter(comment.state for comment in file.comments)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return FileDrawing(file.name, file.note, unfolded, counts, file.rows)
