"""A table of thousands of rows that can be sorted by any column, searched and filtered, with details for each row.

The rows are stored as compact JSON, column by column, and the script adds only visible rows to the page. The first rows
are also written as HTML, for the time before the script has run and for browsers without scripts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

from viaduct.reporting.figures import MISSING, is_number
from viaduct.reporting.links import check_nearby
from viaduct.reporting.tones import SIGNS, Tone

WRITTEN_ROWS = 30  # rows that are written as HTML
IDENTIFIER = re.compile(r"[a-z][a-z0-9]*")
DIGITS = 9  # significant digits of a number in the JSON, enough to distinguish a cosine of 0.99999999 from 1


class Block(Protocol):
    """Part of a row's details; virtual_table.js draws it from JSON data with a `kind`."""

    def to_json(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class DataColumn:
    """One column of numbers (None: missing; NaN and infinity are shown) or text.

    `width` is in letters, `note` the tooltip of the heading. `orders` are numbers to sort by instead of the text
    (shapes by their size). `tones` give texts their colour and sign. A `filterable` column has a filter above the
    table. A column that `wraps` breaks its text into lines and takes the remaining width. With `decimals`, all numbers
    have that many decimals, and thousands separators.

    If not all columns fit, those with a `priority` are shown, 1 first, as far as there is room. A button and the
    details of a row show the others.
    """

    name: str
    values: Sequence[object]
    width: int = 10
    note: str = ""
    orders: Sequence[float | None] | None = None
    tones: Mapping[str, Tone] = field(default_factory=dict)
    filterable: bool = False
    wraps: bool = False
    priority: int = 0
    decimals: int | None = None

    @cached_property
    def numeric(self) -> bool:
        return all(value is None or is_number(value) for value in self.values)


@dataclass(frozen=True)
class VirtualTable:
    """Columns of equal length. `name` is the prefix of a row's address: `#rows-57`.

    The first `pinned` columns stay in view when scrolled sideways. `download` is a file beside the page with the same
    rows under one line of headings. The details of a row are all its cells and its blocks in `details`. `order` lists
    the indices of the rows in their initial order; None: as given.
    """

    template: ClassVar[str] = "virtual_table.html"

    name: str
    columns: Sequence[DataColumn]
    caption: str = ""
    details: Mapping[int, Sequence[Block]] = field(default_factory=dict)
    download: str = ""
    pinned: int = 1
    order: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not IDENTIFIER.fullmatch(self.name):
            raise ValueError(f"a table's name is small letters and digits, not {self.name!r}.")
        if self.download:
            check_nearby(self.download)
        lengths = {column.name: len(column.values) for column in self.columns}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}.")
        if self.order is not None and sorted(self.order) != list(range(self.height)):
            raise ValueError(f"an order names each of the {self.height} rows once.")

    @property
    def height(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    def drawing(self) -> VirtualDrawing:
        written_rows = list(range(self.height) if self.order is None else self.order)[:WRITTEN_ROWS]
        texts = [[format_value(column.values[row], column.decimals) for row in written_rows] for column in self.columns]
        data: dict[str, object] = {
            "name": self.name,
            "rows": self.height,
            "download": self.download,
            "columns": list(map(column_to_json, self.columns)),
        }
        return VirtualDrawing(
            written=list(zip(*texts, strict=True)),
            data=data if self.order is None else {**data, "order": list(self.order)},
            details={row: [block.to_json() for block in blocks] for row, blocks in self.details.items()},
        )

    @property
    def width(self) -> str:
        """Return the width in CSS; without it, the widths of columns would change with the visible rows."""
        letters = sum(column.width for column in self.columns)
        return f"calc({letters} * var(--letter) + {len(self.columns) * 1.25}rem)"

    @property
    def headings(self) -> list[list[str]]:
        """Return the words of each heading, so that MeanRelativeError may break between them."""
        return [re.split(r"(?<=[a-z])(?=[A-Z])", column.name) for column in self.columns]


@dataclass(frozen=True)
class VirtualDrawing:
    """The rows written as HTML, the JSON data of all rows, and that of the details by row."""

    written: Sequence[Sequence[str]]
    data: dict[str, object]
    details: dict[int, list[dict[str, object]]]


def column_to_json(column: DataColumn) -> dict[str, Any]:
    """Return a column as JSON data; each distinct text is listed once in `words`, and `places` are indices of it."""
    record: dict[str, Any] = {"name": column.name, "width": column.width}
    record |= {"filterable": column.filterable, "priority": column.priority}
    if column.wraps:
        record["wraps"] = True
    if column.numeric:
        record["numbers"] = [number_to_json(value) for value in column.values]
        if column.decimals is not None:
            record["decimals"] = column.decimals
        return record
    texts = list(dict.fromkeys(map(format_value, column.values)))
    index = {text: position for position, text in enumerate(texts)}
    record |= {"words": texts, "places": [index[format_value(value)] for value in column.values]}
    if column.orders is not None:
        record["orders"] = [number_to_json(value) for value in column.orders]
    if column.tones:
        record["tones"] = {text: [tone, SIGNS[tone]] for text, tone in column.tones.items()}
    return record


def number_to_json(value: object) -> float | str | None:
    """Return a number for JSON: NaN and infinity as text, integers without a decimal point."""
    if value is None or not is_number(value):
        return None
    number = float(value)
    if not math.isfinite(number):
        return format_value(number)
    return int(number) if number.is_integer() and abs(number) < 1e15 else float(f"{number:.{DIGITS}g}")


def format_value(value: object, decimals: int | None = None) -> str:
    """Return a value as virtual_table.js shows it: six decimals, or scientific notation if very small or large."""
    if value is None:
        return MISSING
    if not is_number(value):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Inf" if number > 0 else "-Inf"
    if decimals is not None:
        return f"{number:,.{decimals}f}"
    if isinstance(value, int) or (number.is_integer() and abs(number) < 1e6):
        return f"{number:.0f}" if number else "0"
    if not 1e-3 <= abs(number) < 1e6:
        return re.sub(r"e\+?(-?)0*(?=\d)", r"e\1", f"{number:.3e}")  # 1.5e-07 as JavaScript writes it: 1.5e-7
    return f"{number:.6f}"
