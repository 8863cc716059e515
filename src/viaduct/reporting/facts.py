"""Names and their values: the device, the seed, the recipe's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.table import write_cell


@dataclass(frozen=True)
class Facts:
    """A definition list; the order is the mapping's own."""

    template: ClassVar[str] = "facts.html"

    values: Mapping[str, object]
    caption: str = ""

    def drawing(self) -> dict[str, str]:
        return {name: write_cell(value) for name, value in self.values.items()}

    def record(self) -> dict[str, object]:
        """The same for page scripts, which draw it in the details of a row."""
        return {"kind": "facts", "values": self.drawing()}
