"""drift.csv: one row per pair of tensors, in the columns of the result table.

Written as RFC 4180 says. A text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line
break) gets an apostrophe before it. Where there are several steps or ranks, Step and Rank follow as last columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from viaduct.comparison.measures import MEASURES
from viaduct.comparison.rows import Row
from viaduct.comparison.tensors import Stored

COLUMNS = (
    *("Index", "OpType", "LeftOp", "LeftDtype", "RightOp", "RightDtype", "TensorIndex", "Shape", "OverFlow"),
    *MEASURES,
    *("Result", "CompareFailReason"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_csv(rows: Sequence[Row]) -> bytes:
    """Return the complete file."""
    several = len({(row.stored.step, row.stored.rank) for row in rows}) > 1
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow((*COLUMNS, "Step", "Rank") if several else COLUMNS)
    for row in rows:
        steps = (row.stored.step, row.stored.rank) if several else ()
        writer.writerow((*make_cells(row).values(), *steps))
    return text.getvalue().encode("utf-8", "backslashreplace")


def make_cells(row: Row) -> dict[str, str]:
    """Return the cells of a row by column."""
    pair, measures = row.pair, row.measures
    figures = measures.columns() if measures else dict.fromkeys(MEASURES, "NaN")
    return {
        "Index": str(pair.group),
        "OpType": neutralise(row.stored.op_type),
        "LeftOp": neutralise(pair.left_op),
        "LeftDtype": neutralise(dtype_text(pair.left)),
        "RightOp": neutralise(pair.right_op),
        "RightDtype": neutralise(dtype_text(pair.right)),
        "TensorIndex": neutralise(row.tensor_index),
        "Shape": shape_text(row.stored.shape),
        "OverFlow": measures.overflow if measures else "NaN",
        **figures,
        "Result": row.result,
        "CompareFailReason": neutralise(describe_reason(row)),
    }


def describe_reason(row: Row) -> str:
    """Return why a row is not good, and from what it follows."""
    follows = f"follows from {row.follows_from}" if row.follows_from else ""
    return "; ".join(part for part in (row.reason, follows) if part)


def dtype_text(stored: Stored | None) -> str:
    return "" if stored is None else stored.dtype


def shape_text(sizes: Sequence[int]) -> str:
    return "[" + ",".join(map(str, sizes)) + "]"


def neutralise(text: str) -> str:
    """Escape formulas for spreadsheets, NUL and control characters."""
    text = text.replace("\0", "\\0")
    clean = "".join(char if char.isprintable() or char in "\t\r\n" else ascii(char)[1:-1] for char in text)
    return f"'{clean}" if clean.startswith(FORMULA) else clean
