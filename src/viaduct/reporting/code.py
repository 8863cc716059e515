"""Text to be shown as it was written: a command, a diff, a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Code:
    """Preformatted text, with an optional line above it that says what it is."""

    template: ClassVar[str] = "code.html"

    text: str
    caption: str = ""

    def drawing(self) -> Code:
        return self
