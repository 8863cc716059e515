"""drift.csv: a row a pair of tensors, in the columns of the result table.

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
    """The whole file."""
    several = len({(row.stored.step, row.stored.rank) for row in rows}) > 1
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow((*COLUMNS, "Step", "Rank") if several else COLUMNS)
    for row in rows:
        steps = (row.stored.step, row.stored.rank) if several else ()
        writer.writerow((*cells(row).values(), *steps))
    return text.getvalue().encode("utf-8", "backslashreplace")


def cells(row: Row) -> dict[str, str]:
    """Column -> what stands in it."""
    pair, measures = row.pair, row.measures
    figures = measures.columns() if measures else dict.fromkeys(MEASURES, "NaN")
    return {
        "Index": str(pair.group),
        "OpType": harmless(row.stored.op_type),
        "LeftOp": harmless(pair.left_op),
        "LeftDtype": harmless(dtype(pair.left)),
        "RightOp": harmless(pair.right_op),
        "RightDtype": harmless(dtype(pair.right)),
        "TensorIndex": harmless(row.tensor_index),
        "Shape": shape(row.stored.shape),
        "OverFlow": measures.overflow if measures else "NaN",
        **figures,
        "Result": row.result,
        "CompareFailReason": harmless(said(row)),
    }


def said(row: Row) -> str:
    """Why it is not good, and what it follows from."""
    follows = f"follows from {row.follows_from}" if row.follows_from else ""
    return "; ".join(part for part in (row.reason, follows) if part)


def dtype(stored: Stored | None) -> str:
    return "" if stored is None else stored.dtype


def shape(sizes: Sequence[int]) -> str:
    return "[" + ",".join(map(str, sizes)) + "]"


def harmless(text: str) -> str:
    """No formula for a spreadsheet, no NUL for a reader, nothing that talks to a terminal."""
    text = text.replace("\0", "\\0")
    clean = "".join(char if char.isprintable() or char in "\t\r\n" else ascii(char)[1:-1] for char in text)
    return f"'{clean}" if clean.startswith(FORMULA) else clean
