"""The rows of a comparison as the page's table: the columns of drift.csv, and the details of a row.

The page has details (histograms, distances, largest errors, statistics) for the measured rows of the origin's operator,
for at most MAX_DETAILS other bad or flagged rows, and for a sample of good rows. So it stays below five megabytes for
five thousand rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from viaduct.comparison.measures import MEASURES, ElementIndex, Measures, SideStatistics
from viaduct.comparison.records import SEVERITY, Result, Row
from viaduct.reporting import BarChart, Block, DataColumn, Facts, HistogramPair, Link, Table, Tone, VirtualTable
from viaduct.reporting.figures import SUPERSCRIPTS

ROW_TABLE = "rows"  # the table's name on the page, used in links
# Priorities of the measures that stay on a narrow screen (DataColumn.priority); 1 stays longest.
PRIORITIES = {"RelativeEuclideanDistance": 2, "CosineSimilarity": 4, "MaxAbsoluteError": 5}
MAX_DETAILS = 1200  # bad or flagged rows with details
SAMPLE = 300  # largest number of good rows with details, besides the origin's operator
MAX_LISTED = 8  # largest errors, and places of NaN or Inf, that are listed
MAX_BARS = 11  # of the chart of distances, without the bar of equal elements
TONES: dict[Result, Tone] = {"good": "good", "bad": "bad", "flag": "warn", "refused": "muted", "new": "new"}


def link_to_row(row: int) -> str:
    return f"#{ROW_TABLE}-{row}"


def make_row_table(rows: Sequence[Row], names: tuple[str, str], csv: str, origin: int | None) -> VirtualTable:
    """Return the table: the columns of the CSV in another order, and Role, FollowsFrom and Matched."""
    return VirtualTable(
        ROW_TABLE,
        make_columns(rows),
        caption="Every pair of tensors",
        details={row: make_details(rows[row], names, source) for row, source in select_detailed(rows, origin).items()},
        download=csv,
        pinned=2,
        order=order_rows(rows, origin),
    )


def order_rows(rows: Sequence[Row], origin: int | None) -> list[int]:
    """Return row numbers by severity; the origin is first, and rows that follow from it come after other bad ones."""

    def severity(number: int) -> tuple[bool, int, bool, int]:
        row = rows[number]
        return number != origin, SEVERITY.index(row.result), bool(row.follows_from), number

    return sorted(range(len(rows)), key=severity)


def make_columns(rows: Sequence[Row]) -> list[DataColumn]:
    tones: dict[str, Tone] = {result: TONES[result] for result in SEVERITY}
    stored, pairs = [row.tensor for row in rows], [row.pair for row in rows]
    matched = [p.matched_by if p.confidence >= 1 else f"{p.matched_by} {100 * p.confidence:.0f} %" for p in pairs]
    several = [
        DataColumn(name.title(), values, 6, filterable=True, priority=3)
        for name, values in (("step", [tensor.step for tensor in stored]), ("rank", [tensor.rank for tensor in stored]))
        if len(set(values)) > 1
    ]
    return [
        DataColumn("Result", [row.result for row in rows], 9, tones=tones, filterable=True, priority=1),
        DataColumn("TensorIndex", [row.tensor_index for row in rows], 20, wraps=True, priority=1),
        *several,
        DataColumn("Index", [pair.group for pair in pairs], 6, "rows of one fused group share it"),
        DataColumn("OpType", [tensor.op_type for tensor in stored], 13, priority=6),
        *(make_measure_column(name, field, rows) for name, field in MEASURES.items()),
        DataColumn("LeftOp", [pair.left_op for pair in pairs], 24),
        DataColumn("LeftDtype", [pair.left.dtype if pair.left else "" for pair in pairs], 10),
        DataColumn("RightOp", [pair.right_op for pair in pairs], 24),
        DataColumn("RightDtype", [pair.right.dtype if pair.right else "" for pair in pairs], 10),
        DataColumn(
            "Shape",
            ["×".join(map(str, tensor.shape)) or "scalar" for tensor in stored],
            16,
            orders=[math.prod(tensor.shape) for tensor in stored],
        ),
        DataColumn("OverFlow", [row.measures.overflow if row.measures else "NaN" for row in rows], 9),
        DataColumn("CompareFailReason", [row.reason for row in rows], 34, wraps=True, priority=7),
        DataColumn("Role", [tensor.role for tensor in stored], 12, filterable=True),
        DataColumn("FollowsFrom", [row.follows_from for row in rows], 24),
        DataColumn("Matched", matched, 14, "how the two tensors were paired"),
    ]


def make_measure_column(name: str, field: str, rows: Sequence[Row]) -> DataColumn:
    """Return the column of one measure; NaN for a row without measures, as in the CSV."""
    if name == "StandardDeviation":
        deviations = [row.measures.left.std if row.measures else math.nan for row in rows]
        texts = [row.measures.standard_deviation if row.measures else "NaN" for row in rows]
        return DataColumn(name, texts, 27, "(mean;deviation) of left and right; sorts by left deviation", deviations)
    values = [getattr(row.measures, field) if row.measures else math.nan for row in rows]
    return DataColumn(name, values, 13, priority=PRIORITIES.get(name, 0))


def select_detailed(rows: Sequence[Row], origin: int | None) -> dict[int, int | None]:
    """Return the numbers of the rows with details, each with the number of the row that it follows from, or None."""
    sources = find_source_rows(rows, origin)
    remarkable = [n for n, row in enumerate(rows) if row.result in ("bad", "flag")]
    remarkable.sort(key=lambda n: bool(rows[n].follows_from))
    good = [n for n, row in enumerate(rows) if row.result == "good"]
    at_origin = [] if origin is None else [n for n, row in enumerate(rows) if row.op == rows[origin].op]
    sample = good[:: max(1, math.ceil(len(good) / SAMPLE))]
    return {n: sources.get(rows[n].follows_from) for n in [*at_origin, *remarkable[:MAX_DETAILS], *sample]}


def find_source_rows(rows: Sequence[Row], origin: int | None) -> dict[str, int]:
    """Return for each operator the target of links "follows from": its first bad row or, for the origin's, that row."""
    sources = {} if origin is None else {rows[origin].op: origin}
    for number, row in enumerate(rows):
        if row.result == "bad":
            sources.setdefault(row.op, number)
    return sources


def make_details(row: Row, names: tuple[str, str], source: int | None) -> list[Block]:
    """Return the details of a row. `names`: of both sides. `source`: the number of the row that it follows from."""
    links: list[Block] = [] if source is None else [Link(f"follows from {row.follows_from}", link_to_row(source))]
    measures = row.measures
    if measures is None:
        return links
    errors = list_largest_errors(measures, names) if measures.top else None
    drawn = [part for part in (draw_values(measures, names), draw_distances(measures), errors) if part]
    return [*links, *drawn, list_statistics(measures, names), Facts(count_elements(measures, names))]


def list_statistics(measures: Measures, names: tuple[str, str]) -> Table:
    fields = ("min", "max", "mean", "std", "norm", "nan", "inf", "saturated")
    sides = (measures.left, measures.right)
    rows = [[field, *(format_statistic(side, field) for side in sides)] for field in fields]
    return Table(["statistic", *names], rows, "Both sides")


def format_statistic(side: SideStatistics, field: str) -> str:
    value = getattr(side, field)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def count_elements(measures: Measures, names: tuple[str, str]) -> dict[str, object]:
    """Return the facts of a row: numbers of elements, the first NaN, Inf and mismatch, and notes."""
    facts: dict[str, object] = {
        "elements": f"{measures.count:,}",
        "differing": f"{measures.differing:,}",
        f"within {measures.tolerance:g}": "NaN" if math.isnan(measures.within) else f"{100 * measures.within:.3f} %",
    }
    for name, side in zip(names, (measures.left, measures.right), strict=True):
        if side.nonfinite:
            facts[f"NaN or Inf of {name}"] = ", ".join(map(format_index, side.nonfinite[:MAX_LISTED]))
    if measures.first_mismatch:
        facts["first difference in NaN or Inf"] = format_index(measures.first_mismatch)
    if measures.notes:
        facts["note"] = "; ".join(measures.notes)
    return facts


def format_index(element: ElementIndex) -> str:
    return f"({', '.join(map(str, element.index))})"


def draw_values(measures: Measures, names: tuple[str, str]) -> HistogramPair | None:
    """Return a histogram of both sides' values; None without one, or if its limits are not finite."""
    bins = measures.histogram
    if bins is None or not (math.isfinite(bins.low) and math.isfinite(bins.high)):
        return None
    return HistogramPair("Values", bins.low, bins.high, bins.left, bins.right, *names)


def draw_distances(measures: Measures) -> BarChart | None:
    """Return a bar chart of distances in ulps: equal elements, then at most MAX_BARS bars of joined bins; None without.

    Of a large tensor the counts are of a sample (ulps.py).
    """
    if measures.ulps is None or not any(measures.ulps.counts):
        return None
    equal, *others = measures.ulps.counts
    first = next((bin_ for bin_, count in enumerate(others) if count), len(others))
    width = max(1, math.ceil((len(others) - first) / MAX_BARS))
    starts = range(first, len(others), width)
    return BarChart(
        f"Distance in units of the last place ({measures.ulps.dtype})",
        ["equal", *(name_bin(start, min(start + width, len(others))) for start in starts)],
        [equal, *(sum(others[start : start + width]) for start in starts)],
    )


def name_bin(start: int, end: int) -> str:
    """Return the label of distances from 2^start to 2^end - 1: `1`, `2–3`, `4–7`, or `2¹² to 2¹⁴` beyond 2^13."""
    if end > 13:
        low, high = (f"2{str(exponent).translate(SUPERSCRIPTS)}" for exponent in (start, end))
        return f"{low} to {high}"
    return f"{2**start}–{2**end - 1}" if end > 1 else "1"


def list_largest_errors(measures: Measures, names: tuple[str, str]) -> Table:
    shown = measures.top[:MAX_LISTED]
    rows = [[format_index(e.element), f"{e.left:.5g}", f"{e.right:.5g}", f"{e.error:.3g}"] for e in shown]
    return Table(["position", *names, "error"], rows, "Largest errors")
