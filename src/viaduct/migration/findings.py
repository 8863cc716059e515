"""Finding of a migration about one place: a change, advice, a need for manual review, or an unresolved construct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from viaduct.cards.limits import Risk

Status = Literal["changed", "advice", "manual", "unresolved"]
"""manual: the user has to review the place; unresolved: the text does not show if a change is needed."""
Kind = Literal["mandatory", "performance", "advice", "report"]
"""Purpose of a rule: necessary edits; edits for speed; advice; reports of places for review."""
UNFINISHED_STATUSES: tuple[Status, ...] = ("manual", "unresolved")
"""Statuses of findings that the user has to review."""
RISK_ORDER: dict[Risk, int] = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about one place of a file. Lines count from 1 and are those of the original file."""

    file: str  # path relative to the project's root, with /
    line: int
    end_line: int
    column: int
    rule: str
    kind: Kind
    status: Status
    message: str
    message_zh: str = ""
    risk: Risk = "medium"  # that something fails if nothing is done; for `changed`: that the change is wrong
    before: str = ""  # text of the lines before and, for a change, after the migration
    after: str = ""

    def text(self, language: str) -> str:
        """Return the message in Chinese for "zh" if it has one, else in English."""
        return self.message_zh if language == "zh" and self.message_zh else self.message

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """Sort key of findings."""
        return (self.file, self.line, self.column, self.rule, self.message)
