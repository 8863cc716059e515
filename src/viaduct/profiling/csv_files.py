"""CSV files of other tools, read line by line, also if they are damaged.

    for row in read_rows(path, notes):
        row.text("OP Type", "Op Type"), row.time_us("Task Duration", "Duration"), row.bytes("Total Allocated")

A column's name matches in any case, with any spaces and underscores; the unit in `Duration(us)` is not part of it. Rows
that are damaged or too short, such as a truncated last line, are left out, and bytes that are not text are replaced;
`notes` gets a sentence about either. N/A and an empty cell are "" as a text. As a number they are None, like words.
"""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from viaduct.path_errors import refuse_special_file

UNIT = re.compile(r"(.*?)\s*\(([^()]*)\)$")
TO_US = {"us": 1.0, "μs": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
TO_BYTES = {"b": 1, "byte": 1, "bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
LONGEST_CELL = 16 << 20  # characters; a cell may hold a call stack
MAX_ROWS = 5_000_000  # of one file; further rows are not read, and a note says so
Columns = dict[str, list[tuple[int, str]]]  # name without unit -> position and unit of each column of that name


def normalise_name(name: str) -> str:
    """Return a column's name in lower case, with single spaces instead of underscores."""
    return " ".join(name.replace("_", " ").lower().split())


def split_unit(column: str) -> tuple[str, str]:
    """Return the normalised name of a column and its unit; "" without a known unit."""
    match = UNIT.fullmatch(normalise_name(column))
    if match and (match[2] in TO_US or match[2] in TO_BYTES):
        return match[1], match[2]
    return normalise_name(column), ""


class CsvRow:
    """One row of a table, with its columns by name."""

    def __init__(self, cells: list[str], columns: Columns) -> None:
        self.cells = cells
        self.columns = columns

    def text(self, *names: str) -> str:
        """Return the cell of the first of these columns that exists; "" for N/A, or if none exists."""
        return next((clean_cell(self.cells[position]) for position, _ in self.find_columns(names)), "")

    def number(self, *names: str) -> float | None:
        """Return the cell as a number, in the unit of its column."""
        return parse_number(self.text(*names))

    def time_us(self, *names: str) -> float | None:
        """Return the cell in microseconds, which is also the unit of columns whose name has none."""
        return next(iter(self.times_us(*names)), None)

    def times_us(self, *names: str) -> list[float | None]:
        """Return the cells of all columns of these names in microseconds."""
        return [self.scale_number(position, TO_US.get(unit, 1.0)) for position, unit in self.find_columns(names)]

    def bytes(self, *names: str) -> int | None:
        """Return the cell in bytes; None if the column names no unit of memory."""
        position, unit = next(self.find_columns(names), (0, ""))
        value = self.scale_number(position, TO_BYTES[unit]) if unit in TO_BYTES else None
        return None if value is None else round(value)

    def find_columns(self, names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Yield position and unit of each column that has one of these names."""
        for name in names:
            yield from self.columns.get(normalise_name(name), ())

    def scale_number(self, position: int, factor: float) -> float | None:
        value = parse_number(self.cells[position])
        return None if value is None else value * factor


def clean_cell(cell: str) -> str:
    """Return a cell without spaces and quotes around it; "" for N/A and similar texts."""
    text = cell.strip().strip('"').strip()
    return "" if text.upper() in ("N/A", "NA", "NAN", "NONE", "NULL", "-") else text


def parse_number(text: str) -> float | None:
    """Return a finite number; None for anything else."""
    try:
        value = float(clean_cell(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_rows(path: Path, notes: list[str]) -> Iterator[CsvRow]:
    """Yield the complete rows of a CSV file; `notes` gets a sentence about rows that were left out."""
    refuse_special_file(path)
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(read_lines(path, notes))
    header: list[str] | None = None
    columns: Columns = {}
    needed = 0  # cells of a complete row
    damaged, last_is_damaged, count = 0, False, 0
    while True:  # the reader raises csv.Error for a damaged row and can then continue with the next one
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error:
            damaged, last_is_damaged = damaged + 1, True
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header, columns = cells, index_columns(cells)
            # Some writers end each line with a comma, so the last names may be empty.
            needed = max((number for number, name in enumerate(cells, 1) if name.strip()), default=0)
            continue
        last_is_damaged = len(cells) < needed
        if last_is_damaged:
            damaged += 1
            continue
        count += 1
        if count > MAX_ROWS:
            notes.append(f"{path.name}: only the first {MAX_ROWS:,} rows were read.")
            return
        yield CsvRow(cells + [""] * (len(header) - len(cells)), columns)
    notes += describe_damage(path, header, count, damaged, last_is_damaged)


def describe_damage(path: Path, header: list[str] | None, count: int, damaged: int, at_end: bool) -> list[str]:
    """Return a note about damaged rows; `count`: number of complete rows, `at_end`: the last row is damaged."""
    if header is None:
        return [f"{path.name} is empty."]
    if damaged == 1 and at_end:
        return [f"{path.name}: its last line is truncated and was left out; {count:,} rows were read."]
    return [f"{path.name}: {damaged:,} damaged rows were left out; {count:,} were read."] if damaged else []


def index_columns(header: list[str]) -> Columns:
    columns: Columns = {}
    for position, name in enumerate(header):
        base, unit = split_unit(name)
        columns.setdefault(base, []).append((position, unit))
    return columns


def read_lines(path: Path, notes: list[str]) -> Iterator[str]:
    """Yield the lines of a text file; bytes that cannot be decoded are replaced, and a note says so."""
    encoding = find_encoding(path)
    is_replaced = False
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        for line in file:
            if not is_replaced and "\ufffd" in line:
                is_replaced = True
                notes.append(f"{path.name}: some bytes are not {encoding}; they were replaced.")
            yield line.replace("\0", "")


def find_encoding(path: Path) -> str:
    """Return UTF-16 if the file begins with its byte order mark, GB18030 if its beginning is not UTF-8, else UTF-8."""
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        head.rsplit(b"\n", 1)[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        return "gb18030"
    return "utf-8-sig"


def read_table(
    path: Path, notes: list[str], most: int = 500, keep: Callable[[CsvRow], bool] = lambda row: True
) -> dict[str, Any] | None:
    """Return the rows that `keep` accepts as a table of `Profile.tables`, with numbers converted; None without rows.

    If there are more than `most` rows, only the first are returned, and a note says so.
    """
    rows: list[list[Any]] = []
    header: list[str] = []
    for row in filter(keep, read_rows(path, notes)):
        if not header:
            positions = {
                position: (name, unit) for name, same_name in row.columns.items() for position, unit in same_name
            }
            header = [f"{name} ({unit})" if unit else name for _, (name, unit) in sorted(positions.items())]
        if len(rows) == most:
            notes.append(f"{path.name}: the report has its first {most:,} rows.")
            break
        rows.append([convert_cell(cell) for cell in row.cells[: len(header)]])
    return {"columns": header, "rows": rows} if rows else None


def convert_cell(cell: str) -> Any:
    """Return a cell as integer, number or text; None for N/A."""
    text = clean_cell(cell)
    if not text:
        return None
    value = parse_number(text)
    if value is None:
        return text
    return int(value) if value.is_integer() and abs(value) < 1 << 53 and "." not in text else value
