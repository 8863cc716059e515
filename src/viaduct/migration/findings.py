"""Finding of a migration about a few lines of a file: a change, advice, or a need for manual review."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from viaduct.cards.limits import Risk

Status = Literal["changed", "advice", "manual", "unresolved"]
"""manual: the user has to review the lines; unresolved: so far it is not known if they need a change."""
Category = Literal["mandatory", "performance", "advice", "report"]
"""Purpose of the rule: edits that the target requires; edits for speed; advice; lines for manual review."""
UNFINISHED_STATUSES: tuple[Status, ...] = ("manual", "unresolved")
"""Statuses of findings that the user has to review."""
RISK_ORDER: dict[Risk, int] = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about a few lines of a file. Lines count from 1 and are those of the original file."""

    file: str  # path relative to the project's root, with /
    line: int
    end_line: int
    column: int  # from 1; in Python files `ast` counts bytes of UTF-8
    rule: str
    category: Category
    status: Status
    message: str
    message_zh: str = ""  # the message in Chinese
    risk: Risk = "medium"  # risk of a failure if the user does nothing; for `changed`: risk that the change is wrong
    before: str = ""  # text of the lines in the original file
    after: str = ""  # text of the lines after the migration; only for `changed`

    def message_in(self, language: str) -> str:
        """Return the message in Chinese for "zh" if it has one, else in English."""
        return self.message_zh if language == "zh" and self.message_zh else self.message

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """Sort key of findings."""
        return (self.file, self.line, self.column, self.rule, self.message)
