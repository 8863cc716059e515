"""A table that sorts when its headings are clicked; the order given is the order shown first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from viaduct.reporting.figures import MISSING, is_missing, is_number, write_column

QUANTITY = re.compile(r"([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s?([%×°\w/]*)", re.IGNORECASE)
"""A number and perhaps its unit, already written by the caller: `95.3 %`, `1,204 img/s`."""
SENTENCE = 28
"""Letters of a cell from which on the rows of its table become cards on a phone."""
NARROW = 5
"""Columns from which on they do where there is text."""
FEW = 8
"""Rows up to which a table of many numbers does too; more of them are compared down their columns, and scroll."""


@dataclass(frozen=True)
class Value:
    """A cell with words of its own that sorts as a number: `equal`, which is a difference of 0."""

    text: str
    number: float

    def __float__(self) -> float:
        return self.number

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows of numbers, text or None; NaN and None are missing, and sort last whichever way one sorts."""

    template: ClassVar[str] = "table.html"

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""

    def __post_init__(self) -> None:
        for position, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {position} has {len(row)} cells for {len(self.columns)} columns: {row!r}.")

    def drawing(self) -> TableDrawing:
        columns = [draw_column(name, [row[i] for row in self.rows]) for i, name in enumerate(self.columns)]
        cells = [[column.cells[row] for column in columns] for row in range(len(self.rows))]
        return TableDrawing(self.caption, columns, cells)

    def record(self) -> dict[str, object]:
        """The same for page scripts, which draw it in the details of a row."""
        rows = [[cell if isinstance(cell, str) else write_cell(cell) for cell in row] for row in self.rows]
        return {"kind": "table", "caption": self.caption, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and in a numeric column the number to sort by; None where a value is missing."""

    text: str
    number: float | None = None
    missing: bool = False

    @property
    def order(self) -> str:
        """The number as the page's script reads it."""
        if self.number is None:
            return ""
        return repr(self.number).replace("inf", "Infinity")


@dataclass(frozen=True)
class Column:
    """Heading and cells of a column."""

    name: str
    numeric: bool
    cells: Sequence[Cell]


@dataclass(frozen=True)
class TableDrawing:
    """Table as the template needs it."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def stacks(self) -> bool:
        """Return True if a phone has no room for these columns side by side, nor are they numbers to scroll along."""
        texts = [cell.text for column in self.columns if not column.numeric for cell in column.cells]
        longest = max(map(len, texts), default=0)
        many = len(self.columns) > NARROW and len(self.rows) <= FEW
        wide = longest >= SENTENCE or (bool(texts) and len(self.columns) >= NARROW) or many
        return len(self.columns) > 1 and wide


def draw_column(name: str, values: Sequence[object]) -> Column:
    """Sort and align by number only if everything present is one; a word among numbers makes text of all."""
    present = [value for value in values if not is_missing(value)]
    numbers = read_numbers(present)
    orders: list[float] | list[None] = numbers or [None] * len(present)
    plain = [value for value in present if not isinstance(value, Value)]
    uniform = bool(numbers) and len(plain) == len(present) and all(map(is_number, plain))
    texts = write_column(numbers) if uniform else map(write_cell, present)
    written = iter([Cell(*pair) for pair in zip(texts, orders, strict=True)])
    cells = [Cell(MISSING, missing=True) if is_missing(value) else next(written) for value in values]
    return Column(name, bool(numbers), cells)


def write_cell(value: object) -> str:
    if isinstance(value, Value):
        return value.text
    if is_missing(value):
        return MISSING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return write_column([float(value)])[0] if is_number(value) else str(value)


def read_numbers(values: Sequence[object]) -> list[float]:
    """The values as numbers, or nothing at all if one is not a number or their units differ."""
    numbers = [float(value) for value in values if is_number(value)]
    if len(numbers) == len(values):
        return numbers
    matches = [QUANTITY.fullmatch(value) if isinstance(value, str) else None for value in values]
    found = [match for match in matches if match]
    if len(found) < len(values) or len({match[2] for match in found}) > 1:
        return []
    return [float(match[1].replace(",", "").replace("−", "-")) for match in found]
