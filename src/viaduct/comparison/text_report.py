"""The text that `viaduct compare` prints: counts, the worst rows and the explanation."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from viaduct.comparison.calls import compute_error
from viaduct.comparison.drift import Drift
from viaduct.comparison.measures import format_measure
from viaduct.comparison.records import RESULT_MEANINGS, Cause, Neighbour, Row, count_results
from viaduct.terminal import escape_controls

MAX_FURTHER = 4  # other origins that are printed
COLOURS = {"good": "green", "bad": "red", "flag": "yellow", "refused": "magenta", "new": "cyan"}


def make_counts_table(drift: Drift) -> Table:
    """Return the number of tensors by result."""
    table = Table("result", "tensors", "", box=None, header_style="dim")
    table.columns[1].justify = "right"
    for result, count in count_results(drift.rows).items():
        name = Text(result, style=COLOURS[result] if count else "dim")
        table.add_row(name, f"{count:,}", Text(RESULT_MEANINGS[result], "dim"))
    return table


def make_worst_table(drift: Drift, max_rows: int) -> Table | None:
    """Return a table of the origin, the bad rows (largest errors first) and the refused ones; None without any."""
    origin = drift.explanation.origin
    first = [drift.rows[origin.row_index]] if origin else []
    bad = sorted((row for row in drift.rows if row.result == "bad"), key=lambda row: -compute_error(row))
    refused = [row for row in drift.rows if row.result == "refused"]
    rows = list({id(row): row for row in (*first, *bad, *refused)}.values())[:max_rows]
    if not rows:
        return None
    table = Table("", "step", "tensor", "cosine", "euclid", "max abs", "why", box=None, header_style="dim")
    for name in ("step", "cosine", "euclid", "max abs"):
        next(column for column in table.columns if column.header == name).justify = "right"
    for row in rows:
        table.add_row(*make_cells(row))
    return table


def make_cells(row: Row) -> Iterator[Text]:
    measures = row.measures
    yield Text(row.result, style=COLOURS[row.result])
    yield Text(str(row.tensor.step))
    yield Text(escape_controls(row.tensor_index))
    for name in ("cosine", "relative_euclidean", "max_absolute"):
        yield Text(format_measure(getattr(measures, name)) if measures else "NaN")
    why = f"follows from {row.follows_from}" if row.follows_from else row.reason
    yield Text(escape_controls(why.split(";")[0]), style="dim")


def describe_explanation(drift: Drift, full: bool) -> str:
    """Return the headline; with `full` also the origin, its neighbours, causes and advice."""
    explanation, origin = drift.explanation, drift.explanation.origin
    lines = ["", capitalise(explanation.headline)]
    if not full:
        if explanation.causes:
            lines.append("  --explain shows its inputs, what speaks for that cause, and what to try.")
        return "\n".join(lines)
    if origin is not None:
        lines.append(f"  first divergence  {drift.rows[origin.row_index].tensor_index}, step {origin.step}")
        lines.append(f"  how we know       {origin.why}")
        first_hop = 0 if origin.kind == "input" else -1  # no operator feeds the network's input
        shown = [neighbour for neighbour in explanation.neighbours if first_hop <= neighbour.hops <= 1]
        lines += [f"  {describe_neighbour(neighbour, bool(explanation.edges))}" for neighbour in shown]
    lines += [line for number, cause in enumerate(explanation.causes) for line in describe_cause(cause, number)]
    if origin is not None and not explanation.causes:
        lines.append("  likely cause      none of the known ones fits; the page (--out) draws the operators around it")
    for other in explanation.further[:MAX_FURTHER]:
        lines.append(f"  also by itself    {other.op} (step {other.step}): {other.why}")
    if (unprinted := len(explanation.further) - MAX_FURTHER) > 0:
        lines.append(f"  and by themselves {unprinted} more at least; the summary names them")
    return "\n".join(lines)


def describe_neighbour(neighbour: Neighbour, is_linked: bool) -> str:
    """Describe an operator near the origin. `is_linked`: it is a neighbour by data flow, not by order of execution."""
    before, after = ("reads from", "is read by") if is_linked else ("ran before it", "ran after it")
    relation = {-1: before, 0: "the origin", 1: after}[neighbour.hops]
    error = "" if neighbour.error is None else f", error {neighbour.error:.2g}"
    kind = f" ({neighbour.op_type})" if neighbour.op_type else ""
    return f"{relation:16s}  {neighbour.op}{kind}: {neighbour.result}{error}"


def describe_cause(cause: Cause, number: int) -> Iterator[str]:
    """Yield the lines of a cause; only the likeliest, number 0, has advice."""
    label = "likely cause" if number == 0 else "or perhaps"
    yield f"  {label:16s}  {cause.name} ({cause.confidence:.0%}): {cause.evidence}"
    if number == 0:
        yield f"  what to try       {cause.advice}"


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
