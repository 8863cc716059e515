"""Names and their values: the device, the seed, the recipe's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.table import format_cell


@dataclass(frozen=True)
class Facts:
    """A definition list, in the order of the mapping."""

    template: ClassVar[str] = "facts.html"

    values: Mapping[str, object]
    caption: str = ""

    def drawing(self) -> dict[str, str]:
        return {name: format_cell(value) for name, value in self.values.items()}

    def to_json(self) -> dict[str, object]:
        """Return the list as JSON data, from which virtual_table.js draws it in the details of a row."""
        return {"kind": "facts", "values": self.drawing()}
