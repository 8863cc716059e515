"""Files before and after, side by side; changes within a line are marked, comments follow their lines.

All files are one part, so that one filter (diff_view.js) applies to all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

RowKind = Literal["same", "changed", "removed", "added"]
MAX_UNFOLDED = 20  # number of files that are unfolded at first; a browser lays out a thousand of them slowly


@dataclass(frozen=True, slots=True)
class Comment:
    """A remark on a line. `group` (a rule) and `state` (`changed`, `advice`) are offered as filters."""

    text: str
    group: str
    state: str
    tone: Literal["good", "bad", "warn", "muted"] = "muted"
    place: str = ""  # text after the comment, such as the cell of a notebook


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One line before (`left`) and after (`right`), as pieces of text with True for those that changed.

    `old` and `new` are line numbers. A row without them has only comments on the whole file.
    """

    kind: RowKind
    old: int | None = None
    new: int | None = None
    left: Sequence[tuple[str, bool]] = ()
    right: Sequence[tuple[str, bool]] = ()
    comments: Sequence[Comment] = ()


@dataclass(frozen=True, slots=True)
class DiffFile:
    """One file; a number in `rows` replaces that many unchanged lines."""

    name: str
    rows: Sequence[DiffRow | int]
    note: str = ""

    @property
    def counts(self) -> str:
        """Return the number of comments in each state: `1 advice, 3 changed`."""
        rows = [row for row in self.rows if isinstance(row, DiffRow)]
        states = Counter(comment.state for row in rows for comment in row.comments)
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


@dataclass(frozen=True)
class DiffView:
    """Side-by-side differences of files, with comments."""

    template: ClassVar[str] = "diff_view.html"
    max_unfolded: ClassVar[int] = MAX_UNFOLDED

    files: Sequence[DiffFile]
