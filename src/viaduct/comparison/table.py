"""drift.csv: one row per pair of tensors, in the columns of the result table.

The format is RFC 4180. A text that a spreadsheet would take for a formula (it begins with = + - @, a tab or a line
break) gets an apostrophe in front. If there are several steps or ranks, the last columns are Step and Rank.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from viaduct.comparison.measures import MEASURES
from viaduct.comparison.records import Row

COLUMNS = (
    *("Index", "OpType", "LeftOp", "LeftDtype", "RightOp", "RightDtype", "TensorIndex", "Shape", "OverFlow"),
    *MEASURES,
    *("Result", "CompareFailReason"),
)
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def make_csv(rows: Sequence[Row]) -> bytes:
    has_several = len({(row.tensor.step, row.tensor.rank) for row in rows}) > 1
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow((*COLUMNS, "Step", "Rank") if has_several else COLUMNS)
    for row in rows:
        writer.writerow((*make_cells(row).values(), *((row.tensor.step, row.tensor.rank) if has_several else ())))
    return text.getvalue().encode("utf-8", "backslashreplace")


def make_cells(row: Row) -> dict[str, str]:
    """Return the texts of a row by column, in the order of COLUMNS."""
    pair, measures = row.pair, row.measures
    follows = f"follows from {row.follows_from}" if row.follows_from else ""
    return {
        "Index": str(pair.group),
        "OpType": escape_cell(row.tensor.op_type),
        "LeftOp": escape_cell(pair.left_op),
        "LeftDtype": escape_cell(pair.left.dtype if pair.left else ""),
        "RightOp": escape_cell(pair.right_op),
        "RightDtype": escape_cell(pair.right.dtype if pair.right else ""),
        "TensorIndex": escape_cell(row.tensor_index),
        "Shape": f"[{','.join(map(str, row.tensor.shape))}]",
        "OverFlow": measures.overflow if measures else "NaN",
        **(measures.columns() if measures else dict.fromkeys(MEASURES, "NaN")),
        "Result": row.result,
        "CompareFailReason": escape_cell("; ".join(filter(None, (row.reason, follows)))),
    }


def escape_cell(text: str) -> str:
    """Escape NUL and control characters, and put an apostrophe before a formula."""
    text = text.replace("\0", "\\0")
    clean = "".join(char if char.isprintable() or char in "\t\r\n" else ascii(char)[1:-1] for char in text)
    return f"'{clean}" if clean.startswith(FORMULA_STARTS) else clean
