"""A table of thousands of rows: sorted by any column, filtered by words and by kind, with details for each row.

The rows travel as compact JSON, column by column, and the script keeps only those in sight in the page. The first rows
are also written as HTML: they are what one sees first, and all that one sees where scripts are off.
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

WRITTEN_ROWS = 30
"""How many rows are in the page without its script."""
IDENTIFIER = re.compile(r"[a-z][a-z0-9]*")
DIGITS = 9
"""Of a measure: enough to sort by, and to tell a cosine of 0.99999999 from 1."""


class Block(Protocol):
    """Part of a row's details that can be written as JSON and drawn by the script."""

    def record(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class DataColumn:
    """One column, top to bottom. Numbers (None: not there; NaN and infinite: shown as such) or text.

    `orders` are what to sort by where the text says it badly (shapes by their size); `tones` give texts of a column
    their colour and sign; a column with `choose` has a filter above the table; `width` is in letters. Text of a column
    that `wraps` breaks into a few lines, and such a column takes what width is left.

    `decimals` writes all numbers of a column with so many, and thousands set apart.

    Where not all columns have room, those with a `keep` are shown, 1 before 2 and so on, as far as they fit; the others
    are behind a button, and in the details of a row.
    """

    name: str
    values: Sequence[object]
    width: int = 10
    note: str = ""
    orders: Sequence[float | None] | None = None
    tones: Mapping[str, Tone] = field(default_factory=dict)
    choose: bool = False
    wraps: bool = False
    keep: int = 0
    decimals: int | None = None

    @cached_property
    def numeric(self) -> bool:
        """Return True if the column holds numbers."""
        return all(value is None or is_number(value) for value in self.values)


@dataclass(frozen=True)
class VirtualTable:
    """`name` makes the address of a row: `#rows-57`. The first `pinned` columns stay in sight when scrolled sideways.

    `download` is a file beside the page with the same rows under one line of headings. The details of a row are all its
    cells, and the blocks given for it here. `order` is the order in which the rows are shown first, by their numbers;
    None: as they came.
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
        """How many rows there are."""
        return len(self.columns[0].values) if self.columns else 0

    def drawing(self) -> VirtualDrawing:
        first = list(range(self.height) if self.order is None else self.order)[:WRITTEN_ROWS]
        texts = [[write_value(column.values[row], column.decimals) for row in first] for column in self.columns]
        data: dict[str, object] = {
            "name": self.name,
            "rows": self.height,
            "download": self.download,
            "columns": list(map(column_record, self.columns)),
        }
        return VirtualDrawing(
            self,
            written=list(zip(*texts, strict=True)),
            data=data if self.order is None else {**data, "order": list(self.order)},
            details={row: [block.record() for block in blocks] for row, blocks in self.details.items()},
        )


@dataclass(frozen=True)
class VirtualDrawing:
    """Table as the template needs it."""

    table: VirtualTable
    written: Sequence[Sequence[str]]
    data: dict[str, object]
    details: dict[int, list[dict[str, object]]]

    @property
    def width(self) -> str:
        """A table of fixed columns has to be told its width, or its columns follow whatever rows are in sight."""
        letters = sum(column.width for column in self.table.columns)
        return f"calc({letters} * var(--letter) + {len(self.table.columns) * 1.25}rem)"

    @property
    def headings(self) -> list[list[str]]:
        """The words of each heading, so that MeanRelativeError may break where a word ends."""
        return [re.split(r"(?<=[a-z])(?=[A-Z])", column.name) for column in self.table.columns]

    def sign(self, column: int, text: str) -> tuple[Tone, str] | None:
        tone = self.table.columns[column].tones.get(text)
        return (tone, SIGNS[tone]) if tone else None


def column_record(column: DataColumn) -> dict[str, Any]:
    """Text is sent once and then by number, for a table repeats most of its words."""
    record: dict[str, Any] = {"name": column.name, "choose": column.choose, "width": column.width, "keep": column.keep}
    if column.wraps:
        record["wraps"] = True
    if column.numeric:
        record["numbers"] = [number_record(value) for value in column.values]
        if column.decimals is not None:
            record["decimals"] = column.decimals
        return record
    words = list(dict.fromkeys(write_value(value) for value in column.values))
    index = {name: position for position, name in enumerate(words)}
    record |= {"words": words, "places": [index[write_value(value)] for value in column.values]}
    if column.orders is not None:
        record["orders"] = [number_record(value) for value in column.orders]
    if column.tones:
        record["tones"] = {text: [tone, SIGNS[tone]] for text, tone in column.tones.items()}
    return record


def number_record(value: object) -> float | str | None:
    """A number as JSON can say it: what is not finite goes as text, whole numbers without a point."""
    if value is None or not is_number(value):
        return None
    number = float(value)
    if not math.isfinite(number):
        return write_value(number)
    return int(number) if number.is_integer() and abs(number) < 1e15 else float(f"{number:.{DIGITS}g}")


def write_value(value: object, decimals: int | None = None) -> str:
    """Return a value as virtual_table.js shows it: six decimals, or powers of ten where all would be zeros."""
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
        return re.sub(r"e([+-])0*(?=\d)", lambda found: "e" + found[1].strip("+"), f"{number:.3e}")
    return f"{number:.6f}"
