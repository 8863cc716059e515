"""Tables on the page of a profile: phases, ranks, operators, kernels, and `Profile.tables` (tables of another tool)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from viaduct.profiling.measures import SHORT_PHASE_NAMES, RankFigures, find_roofline_share
from viaduct.profiling.record import Kernel, Operator, Profile
from viaduct.profiling.summary import format_ms_column
from viaduct.reporting import DataColumn, Part, Table, Value, VirtualTable

FEW_ROWS = 12  # largest number of rows of a table without filters and scrolling
MAX_TABLE_ROWS = 20_000  # largest number of rows of a table in `Profile.tables` on the page
TIME_NOTE = "of the kernels that the operator launched itself; on the CPU, without the operators that it calls"
TOTAL_NOTE = "on the host, with the operators that it calls"
NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\s*")


def list_phases(figures: RankFigures) -> Table:
    """Return iteration and phases of one rank."""
    times = (figures.iteration, *figures.phases)
    medians = format_times([phase.median_us for phase in times])
    means = format_times([phase.mean_us for phase in times])
    shares = [format_share(phase.share) for phase in times]
    names = ("iteration", *SHORT_PHASE_NAMES)[: len(times)]
    return Table(
        ["part of a step", "median ms", "mean ms", "share"], list(zip(names, medians, means, shares, strict=True))
    )


def format_times(times_us: Sequence[float]) -> list[Value]:
    """Return a column of microseconds as milliseconds."""
    return [Value(text, time) for text, time in zip(format_ms_column(times_us), times_us, strict=True)]


def list_ranks(ranks: Sequence[RankFigures]) -> Table:
    """Return phases, collectives and exposed time of each rank."""
    heads = ["rank", "steps", "iteration ms", "data tail ms", "forward + backward ms", "update tail ms"]
    rows = [
        [
            figures.rank,
            figures.steps,
            format_time(figures.iteration.mean_us),
            *([format_time(phase.mean_us) for phase in figures.phases] or [None] * 3),
            format_time(figures.collective_us),
            format_time(figures.exposed_us),
        ]
        for figures in ranks
    ]
    return Table(
        [*heads, "collectives ms", "exposed ms"],
        rows,
        "Means per step. Collectives: of steps that have some. Exposed: their time in which the rank computed nothing",
    )


def format_time(time_us: float | None) -> Value | None:
    """Return microseconds as milliseconds with three decimals."""
    return None if time_us is None else Value(f"{time_us / 1000:,.3f}", time_us)


def format_share(share: float | None) -> Value | None:
    """Return a share as a percentage."""
    return None if share is None else Value(f"{100 * share:.1f} %", share)


# Operators and kernels


def list_operators(profile: Profile) -> Part:
    """Return the operators with their share of their rank's time."""
    operators = profile.operators
    times = [operator.device_or_self_us for operator in operators]
    totals = [operator.total_us for operator in operators]
    total = sum_by_rank([operator.rank for operator in operators], times)
    shares = [divide(time, total[operator.rank]) for operator, time in zip(operators, times, strict=True)]
    columns = [  # with their widths in characters; on a narrow screen, columns with a `priority` stay, 1 first
        DataColumn("operator", [operator.name for operator in operators], 30, wraps=True, priority=1),
        DataColumn("module", [operator.module for operator in operators], 26, wraps=True, priority=4),
        DataColumn("phase", [operator.phase for operator in operators], 10, filterable=True),
        DataColumn("time ms", [scale(time, 1e-3) for time in times], 10, TIME_NOTE, priority=2, decimals=3),
        DataColumn("share %", [scale(share, 100) for share in shares], 8, priority=3, decimals=1),
        DataColumn("roofline %", list_roofline(operators, profile), 10, decimals=1),
        DataColumn("calls", [operator.calls for operator in operators], 8, decimals=1),
        DataColumn("host total ms", [scale(time or None, 1e-3) for time in totals], 11, TOTAL_NOTE, decimals=3),
        DataColumn("GFLOP", [scale(operator.flops, 1e-9) for operator in operators], 10, decimals=3),
        DataColumn("MB", [scale(operator.bytes, 1e-6) for operator in operators], 10, decimals=2),
        DataColumn("shapes", [operator.shapes for operator in operators], 34, wraps=True),
        DataColumn("dtypes", [operator.dtypes for operator in operators], 16, wraps=True),
        DataColumn("layout", [operator.layout for operator in operators], 13, filterable=True),
        DataColumn("waits", ["waits" if operator.synchronises else "" for operator in operators], 8, filterable=True),
        DataColumn("line", [operator.location for operator in operators], 20, wraps=True),
        DataColumn("rank", [operator.rank for operator in operators], 6),
    ]
    caption = f"{len(operators):,} operators by name, module and shapes"
    return make_table("operators", drop_empty(columns), caption, sort_by(shares), "operators.csv")


def list_kernels(profile: Profile) -> Part:
    """Return the kernels with their share of their rank's time."""
    kernels = profile.kernels
    total = sum_by_rank([kernel.rank for kernel in kernels], [kernel.time_us for kernel in kernels])
    shares = [divide(kernel.time_us, total[kernel.rank]) for kernel in kernels]
    columns = [  # as in list_operators
        DataColumn("kernel", [kernel.name for kernel in kernels], 26, wraps=True, priority=1),
        DataColumn("kind", [kernel.kind for kernel in kernels], 16, filterable=True, priority=4),
        DataColumn("time ms", [scale(kernel.time_us, 1e-3) for kernel in kernels], 10, priority=2, decimals=3),
        DataColumn("share %", [scale(share, 100) for share in shares], 8, priority=3, decimals=1),
        DataColumn("roofline %", list_roofline(kernels, profile), 10, decimals=1),
        DataColumn("calls", [kernel.calls for kernel in kernels], 8, decimals=1),
        DataColumn("µs a call", [divide(kernel.time_us, kernel.calls) for kernel in kernels], 10, decimals=1),
        DataColumn("dtype", [kernel.dtype for kernel in kernels], 12),
        DataColumn("operator", [kernel.operator for kernel in kernels], 26, wraps=True),
        DataColumn("rank", [kernel.rank for kernel in kernels], 6),
    ]
    return make_table("kernels", drop_empty(columns), f"{len(kernels):,} kernels", sort_by(shares), "kernels.csv")


def list_roofline(rows: Sequence[Operator | Kernel], profile: Profile) -> list[float | None]:
    """Return for each row the percentage of the roofline that it reaches."""
    return [scale(find_roofline_share(row, profile.ceilings), 100) for row in rows]


def sum_by_rank(ranks: Sequence[int], times: Sequence[float]) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for rank, time in zip(ranks, times, strict=True):
        sums[rank] += time
    return sums


def divide(part: float, total: float) -> float | None:
    return part / total if total > 0 else None


def scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def drop_empty(columns: Sequence[DataColumn]) -> list[DataColumn]:
    """Remove columns without values, and the rank if there is only one."""
    return [
        column
        for column in columns
        if any(value not in (None, "") for value in column.values)
        and not (column.name == "rank" and len(set(column.values)) == 1)
    ]


def sort_by(shares: Sequence[float | None]) -> list[int]:
    """Return the indices of the rows, largest share first."""
    return sorted(range(len(shares)), key=lambda row: -(shares[row] or 0.0))


def make_table(name: str, columns: Sequence[DataColumn], caption: str, order: Sequence[int], download: str) -> Part:
    """Return a virtual table, or a plain one for few rows."""
    rows = len(columns[0].values) if columns else 0
    if rows > FEW_ROWS:
        return VirtualTable(name, columns, caption, download=download, order=order)
    cells = [[format_cell(column, row) for column in columns] for row in order]
    return Table([column.name for column in columns], cells, caption)


def format_cell(column: DataColumn, row: int) -> object:
    """Return a cell of a plain table with the decimals of its column."""
    value = column.values[row]
    if column.decimals is None or not isinstance(value, (int, float)):
        return value
    return Value(f"{value:,.{column.decimals}f}", float(value))


# Further tables


def list_further_tables(profile: Profile) -> list[Part]:
    """Return each table in `Profile.tables` that has columns and rows."""
    tables = []
    for number, (name, table) in enumerate(profile.tables.items()):
        if isinstance(table, Mapping) and table.get("columns") and table.get("rows"):
            tables.append(make_further_table(number, name, table["columns"], table["rows"]))
    return tables


def make_further_table(number: int, name: str, columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Part:
    """Return one table; a column whose texts are all numbers is converted to numbers."""
    shown = rows[:MAX_TABLE_ROWS]
    caption = name if len(shown) == len(rows) else f"{name}: the first {len(shown):,} of {len(rows):,} rows"
    raw = [[row[index] if index < len(row) else None for row in shown] for index in range(len(columns))]
    values = [read_column(column) for column in raw]
    if len(shown) <= FEW_ROWS:
        return Table([str(column) for column in columns], list(zip(*values, strict=True)), caption)
    widths = [min(30, max(10, *(len(str(value)) for value in column[:200]))) for column in values]
    data_columns = [
        DataColumn(str(head), values[index], widths[index], priority=index + 1, decimals=count_decimals(raw[index]))
        for index, head in enumerate(columns)
    ]
    return VirtualTable(f"table{number}", data_columns, caption)


def read_column(values: Sequence[Any]) -> list[object]:
    """Return a column as numbers if all its texts are numbers, else as texts; "N/A" and "" are missing values."""
    cells = [None if value is None or str(value).strip() in ("", "N/A", "NA", "nan") else value for value in values]
    texts = [value for value in cells if isinstance(value, str)]
    if all(NUMBER.fullmatch(text.strip()) for text in texts):
        return [float(value) if isinstance(value, str) else value for value in cells]
    return ["" if value is None else str(value) for value in cells]


def count_decimals(values: Sequence[Any]) -> int | None:
    """Return the largest number of decimals in a column, at most 6; None if there are none, or for an exponent."""
    texts = [str(value).strip() for value in values]
    if any("e" in text.lower() for text in texts if NUMBER.fullmatch(text)):
        return None
    decimals = [len(text.partition(".")[2]) for text in texts if NUMBER.fullmatch(text)]
    return min(max(decimals), 6) if any(decimals) else None
