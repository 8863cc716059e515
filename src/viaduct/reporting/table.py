"""A table that is sorted by clicks on its headings; at first, rows have the order given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from viaduct.reporting.figures import MISSING, format_column, is_missing, is_number

# Text of a number with an optional unit: `95.3 %`, `1,204 img/s`.
QUANTITY = re.compile(r"([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s?([%×°\w/]*)", re.IGNORECASE)
# Limits of `TableDrawing.stacks`: on a phone, the rows of a table become cards, or the table scrolls sideways.
# Rows become cards if a text has at least LONG_TEXT letters, if a table with text has at least TEXT_COLUMNS columns, or
# if any table has at least NUMBER_COLUMNS columns and at most FEW_ROWS rows.
LONG_TEXT, TEXT_COLUMNS, NUMBER_COLUMNS, FEW_ROWS = 28, 5, 6, 8


@dataclass(frozen=True)
class Value:
    """A cell that shows a text and is sorted as a number, such as `equal` for a difference of 0."""

    text: str
    number: float

    def __float__(self) -> float:
        return self.number

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows of numbers, text or None; NaN and None are missing values, which are sorted last in either direction."""

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

    def to_json(self) -> dict[str, object]:
        """Return the table as JSON data, from which virtual_table.js draws it in the details of a row."""
        rows = [[cell if isinstance(cell, str) else format_cell(cell) for cell in row] for row in self.rows]
        return {"kind": "table", "caption": self.caption, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and in a numeric column the number to sort by; None if a value is missing."""

    text: str
    number: float | None = None
    missing: bool = False

    @property
    def order(self) -> str:
        """Return the number to sort by as JavaScript writes it; empty if there is none."""
        return "" if self.number is None else repr(self.number).replace("inf", "Infinity")


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
        """Return True if rows become cards on a phone."""
        texts = [cell.text for column in self.columns if not column.numeric for cell in column.cells]
        columns = len(self.columns)
        return columns > 1 and (
            any(len(text) >= LONG_TEXT for text in texts)
            or (bool(texts) and columns >= TEXT_COLUMNS)
            or (columns >= NUMBER_COLUMNS and len(self.rows) <= FEW_ROWS)
        )


def draw_column(name: str, values: Sequence[object]) -> Column:
    """Return the column; it is numeric (sorted and aligned as numbers) if all its values are numbers or missing."""
    present_values = [value for value in values if not is_missing(value)]
    numbers = read_numbers(present_values)
    orders: list[float] | list[None] = numbers or [None] * len(present_values)
    is_uniform = bool(numbers) and all(is_number(value) and not isinstance(value, Value) for value in present_values)
    texts = format_column(numbers) if is_uniform else map(format_cell, present_values)
    present_cells = iter([Cell(*pair) for pair in zip(texts, orders, strict=True)])
    cells = [Cell(MISSING, missing=True) if is_missing(value) else next(present_cells) for value in values]
    return Column(name, bool(numbers), cells)


def format_cell(value: object) -> str:
    """Return the text of a single value, regardless of other values in its column."""
    if isinstance(value, Value):
        return value.text
    if is_missing(value):
        return MISSING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return format_column([float(value)])[0] if is_number(value) else str(value)


def read_numbers(values: Sequence[object]) -> list[float]:
    """Return the values, or the numbers in their texts; an empty list if one has no number or the units differ."""
    numbers = [float(value) for value in values if is_number(value)]
    if len(numbers) == len(values):
        return numbers
    matches = [QUANTITY.fullmatch(value) if isinstance(value, str) else None for value in values]
    if not all(matches) or len({match[2] for match in matches if match}) > 1:
        return []
    return [float(match[1].replace(",", "").replace("−", "-")) for match in matches if match]
