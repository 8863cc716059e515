"""The rows of a comparison as the page's table: the columns of drift.csv, and the details of a row.

Histograms, distances and largest errors are on the page for the origin's operator, for at most MOST_DETAILS bad or
flagged rows, and for a sample of good rows. The page stays below five megabytes for five thousand rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from viaduct.reporting import BarChart, Block, DataColumn, Facts, HistogramPair, Link, Table, Tone, VirtualTable
from viaduct.reporting.figures import SUPERSCRIPTS

from .measures import MEASURES, ElementIndex, Figures, Measures
from .rows import Row
from .tensors import Result

NAME = "rows"
KEPT = {"RelativeEuclideanDistance": 2, "CosineSimilarity": 4, "MaxAbsoluteError": 5}
"""The measures that are shown where there is no room for all, and which of them first."""
MOST_DETAILS = 1200
SAMPLE = 300
"""Good rows with details."""
TOP = 8
MOST_BARS = 11
SEVERITY: tuple[Result, ...] = ("bad", "refused", "flag", "new", "good")
TONES: dict[Result, Tone] = {"good": "good", "bad": "bad", "flag": "warn", "refused": "muted", "new": "new"}


def address(row: int) -> str:
    """Return the link to a row."""
    return f"#{NAME}-{row}"


def row_table(rows: Sequence[Row], names: tuple[str, str], csv: str, origin: int | None) -> VirtualTable:
    """Return the table: the columns of the CSV in another order, with role, origin and way of matching added."""
    return VirtualTable(
        NAME,
        columns(rows),
        caption="Every pair of tensors",
        details={row: details(rows[row], names, link) for row, link in select_detailed(rows, origin).items()},
        download=csv,
        pinned=2,
        order=order_rows(rows, origin),
    )


def order_rows(rows: Sequence[Row], origin: int | None) -> list[int]:
    """Return row numbers by severity: the origin, what is bad by itself, its followers, the good ones last."""

    def severity(number: int) -> tuple[bool, int, bool, int]:
        row = rows[number]
        return number != origin, SEVERITY.index(row.result), bool(row.follows_from), number

    return sorted(range(len(rows)), key=severity)


def columns(rows: Sequence[Row]) -> list[DataColumn]:
    """Return the columns of the table."""
    tones: dict[str, Tone] = {result: TONES[result] for result in SEVERITY}
    stored = [row.stored for row in rows]
    several = [
        DataColumn(name.title(), values, 6, choose=True, keep=3)
        for name, values in (("step", [each.step for each in stored]), ("rank", [each.rank for each in stored]))
        if len(set(values)) > 1
    ]
    return [
        DataColumn("Result", [row.result for row in rows], 9, tones=tones, choose=True, keep=1),
        DataColumn("TensorIndex", [row.tensor_index for row in rows], 20, wraps=True, keep=1),
        *several,
        DataColumn("Index", [row.pair.group for row in rows], 6, "rows of one fused group share it"),
        DataColumn("OpType", [each.op_type for each in stored], 13, keep=6),
        *(measure_column(name, field, rows) for name, field in MEASURES.items()),
        *operator_columns(rows),
        DataColumn("Shape", list(map(shape_text, rows)), 16, orders=[math.prod(each.shape) for each in stored]),
        DataColumn("OverFlow", [row.measures.overflow if row.measures else "NaN" for row in rows], 9),
        DataColumn("CompareFailReason", [row.reason for row in rows], 34, wraps=True, keep=7),
        DataColumn("Role", [each.role for each in stored], 12, choose=True),
        DataColumn("FollowsFrom", [row.follows_from for row in rows], 24),
        DataColumn("Matched", list(map(matched_text, rows)), 14, "how the two tensors were found to belong together"),
    ]


def operator_columns(rows: Sequence[Row]) -> list[DataColumn]:
    pairs = [row.pair for row in rows]
    return [
        DataColumn("LeftOp", [pair.left_op for pair in pairs], 24),
        DataColumn("LeftDtype", [pair.left.dtype if pair.left else "" for pair in pairs], 10),
        DataColumn("RightOp", [pair.right_op for pair in pairs], 24),
        DataColumn("RightDtype", [pair.right.dtype if pair.right else "" for pair in pairs], 10),
    ]


def measure_column(name: str, field: str, rows: Sequence[Row]) -> DataColumn:
    """Return the column of one measure; NaN for a row without measures, as in the CSV."""
    values = [getattr(row.measures, field) if row.measures else math.nan for row in rows]
    if name == "StandardDeviation":
        deviations = [row.measures.left.std if row.measures else math.nan for row in rows]
        texts = [row.measures.standard_deviation if row.measures else "NaN" for row in rows]
        return DataColumn(name, texts, 27, "(mean;deviation) of left and right; sorts by left deviation", deviations)
    return DataColumn(name, values, 13, keep=KEPT.get(name, 0))


def shape_text(row: Row) -> str:
    return "×".join(map(str, row.stored.shape)) or "scalar"


def matched_text(row: Row) -> str:
    pair = row.pair
    return pair.matched if pair.confidence >= 1 else f"{pair.matched} {100 * pair.confidence:.0f} %"


def select_detailed(rows: Sequence[Row], origin: int | None) -> dict[int, int | None]:
    """Return the rows with details, each with the row from which it follows."""
    lead = find_leads(rows, origin)
    by_itself = [n for n, row in enumerate(rows) if row.result in ("bad", "flag") and not row.follows_from]
    following = [n for n, row in enumerate(rows) if row.result in ("bad", "flag") and row.follows_from]
    good = [n for n, row in enumerate(rows) if row.result == "good"]
    wanted = [] if origin is None else [n for n, row in enumerate(rows) if row.op == rows[origin].op]
    sample = good[:: max(1, math.ceil(len(good) / SAMPLE))]
    chosen = dict.fromkeys([*wanted, *(by_itself + following)[:MOST_DETAILS], *sample])
    return {n: lead.get(rows[n].follows_from) for n in chosen}


def find_leads(rows: Sequence[Row], origin: int | None) -> dict[str, int]:
    """Return the row to which `follows from` leads, by operator."""
    found = {} if origin is None else {rows[origin].op: origin}
    for number, row in enumerate(rows):
        if row.result == "bad":
            found.setdefault(row.op, number)
    return found


def details(row: Row, names: tuple[str, str], follows: int | None) -> list[Block]:
    """Return what opening a row shows."""
    links: list[Block] = [] if follows is None else [Link(f"follows from {row.follows_from}", address(follows))]
    if row.measures is None:
        return links
    return [*links, *measured_blocks(row.measures, names)]


def measured_blocks(measures: Measures, names: tuple[str, str]) -> list[Block]:
    errors = largest_errors(measures, names) if measures.top else None
    drawn = [part for part in (value_histogram(measures, names), distance_bars(measures), errors) if part]
    return [*drawn, side_table(measures, names), Facts(count_facts(measures, names))]


def side_table(measures: Measures, names: tuple[str, str]) -> Table:
    fields = ("min", "max", "mean", "std", "norm", "nan", "inf", "saturated")
    rows = [[field, format_figure(measures.left, field), format_figure(measures.right, field)] for field in fields]
    return Table(["statistic", *names], rows, "Both sides")


def format_figure(side: Figures, field: str) -> str:
    value = getattr(side, field)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def count_facts(measures: Measures, names: tuple[str, str]) -> dict[str, object]:
    """Return counts of elements, mismatches and notes."""
    facts: dict[str, object] = {
        "elements": f"{measures.count:,}",
        "differing": f"{measures.differing:,}",
        f"within {measures.tolerance:g}": "NaN" if math.isnan(measures.within) else f"{100 * measures.within:.3f} %",
    }
    for name, side in zip(names, (measures.left, measures.right), strict=True):
        if side.nonfinite:
            facts[f"NaN or Inf of {name}"] = ", ".join(map(index_text, side.nonfinite[:TOP]))
    if measures.first_mismatch:
        facts["first on one side only"] = index_text(measures.first_mismatch)
    if measures.notes:
        facts["note"] = "; ".join(measures.notes)
    return facts


def index_text(element: ElementIndex) -> str:
    return f"({', '.join(map(str, element.index))})"


def value_histogram(measures: Measures, names: tuple[str, str]) -> HistogramPair | None:
    bins = measures.histogram
    if bins is None or not (math.isfinite(bins.low) and math.isfinite(bins.high)):
        return None
    return HistogramPair("Values", bins.low, bins.high, bins.left, bins.right, *names)


def distance_bars(measures: Measures) -> BarChart | None:
    """Return a bar chart of distances in ulps: equal elements, then non-empty bins, joined until few."""
    if measures.ulps is None or not any(measures.ulps.counts):
        return None
    equal, *others = measures.ulps.counts
    first = next((bin_ for bin_, count in enumerate(others) if count), len(others))
    width = max(1, math.ceil((len(others) - first) / MOST_BARS))
    starts = range(first, len(others), width)
    return BarChart(
        f"Distance in units of the last place ({measures.ulps.dtype})",
        ["equal", *(distance_name(start, min(start + width, len(others))) for start in starts)],
        [equal, *(sum(others[start : start + width]) for start in starts)],
    )


def distance_name(start: int, end: int) -> str:
    """Return the label of a bin: `1`, `2–3`, `4–7`, and powers of two once numbers grow long."""
    if end > 13:
        return f"{power_of_two(start)} to {power_of_two(end)}"
    low, high = 2**start, 2**end - 1
    return f"{low}–{high}" if high > low else str(low)


def power_of_two(exponent: int) -> str:
    return "2" + str(exponent).translate(SUPERSCRIPTS)


def largest_errors(measures: Measures, names: tuple[str, str]) -> Table:
    rows = [
        [index_text(entry.element), f"{entry.left:.5g}", f"{entry.right:.5g}", f"{entry.error:.3g}"]
        for entry in measures.top[:TOP]
    ]
    return Table(["position", *names, "error"], rows, "Largest errors")
