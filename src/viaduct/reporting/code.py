"""Preformatted text: a command, a diff, a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Code:
    """Preformatted text, with an optional caption above it."""

    template: ClassVar[str] = "code.html"

    text: str
    caption: str = ""
