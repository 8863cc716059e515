"""The HTML page of a comparison: the answer, charts and the origin, every row (report_rows.py), and both sides."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from viaduct.comparison.drift import Drift
from viaduct.comparison.records import (
    RESULT_MEANINGS,
    RESULTS,
    SEVERITY,
    Explanation,
    Neighbour,
    Row,
    StoredDump,
    count_results,
)
from viaduct.comparison.report_rows import TONES, draw_distances, draw_values, link_to_row, make_row_table
from viaduct.comparison.thresholds import Thresholds, default_thresholds
from viaduct.comparison.ulps import find_coarser_dtype
from viaduct.reporting import (
    Callout,
    Facts,
    GraphDrawing,
    Level,
    LineChart,
    Link,
    Node,
    Page,
    Part,
    Point,
    Remark,
    ScatterChart,
    Section,
    Series,
    Span,
    Table,
    Tile,
    Tone,
    write_page,
)

MAX_PER_HOP = 4  # neighbours drawn at one distance from the origin
MAX_FURTHER = 6  # links to further origins
MAX_PER_STAGE = 0.6  # share of the chart's forward tensors; if a stage has more, the stages get longer names
CSV = "drift.csv"  # the table as a file beside the page
PHASES = {  # role of a tensor -> stage of the chart; the other roles belong to the forward pass
    **dict.fromkeys(("grad_input", "grad_output"), "backward"),
    **dict.fromkeys(("parameter", "gradient", "update"), "parameters"),
}
LEGEND: list[tuple[Tone, str]] = [(TONES[result], result) for result in RESULTS]


def write_report(path: Path, drift: Drift) -> None:
    rows, left, right, explanation, options = drift.rows, drift.left, drift.right, drift.explanation, drift.options
    names = shorten_paths(left.path, right.path)
    levels = [] if options.threshold_source else list_threshold_levels(rows, options.thresholds)
    sections = [
        *make_network_sections(rows, explanation, levels),
        *make_step_sections(rows),
        *make_origin_sections(rows, explanation, names),
        make_table_section(rows, explanation, names),
        make_sides_section(drift, names),
    ]
    title = f"{names[0]} against {names[1]}"
    subtitle = f"Drift of the left side, {left.path}, from the right one, {right.path}"
    answer = Callout(
        choose_overall_tone(rows),
        explanation.headline[:1].upper() + explanation.headline[1:],
        make_remarks(explanation),
        make_links(rows, explanation),
    )
    write_page(Page(title, subtitle, make_tiles(rows), sections, [answer], kind="comparison of tensors"), path)


def shorten_paths(left: Path, right: Path) -> tuple[str, str]:
    """Return the last parts in which two paths differ: `npu` and `gpu` for runs/npu/dump and runs/gpu/dump.

    If there are none, return `left` and `right`.
    """
    left_parts, right_parts = list(left.parts), list(right.parts)
    while len(left_parts) > 1 and len(right_parts) > 1 and left_parts[-1] == right_parts[-1]:
        left_parts.pop()
        right_parts.pop()
    if left_parts[-1:] == right_parts[-1:]:
        return "left", "right"
    return left_parts[-1] if left_parts else "left", right_parts[-1] if right_parts else "right"


# The answer


def choose_overall_tone(rows: Sequence[Row]) -> Tone:
    """Return "bad" if a row is bad, "good" if all others are good or new and one is good, else "warn"."""
    count = count_results(rows)
    if count["bad"]:
        return "bad"
    return "warn" if count["flag"] or count["refused"] or not count["good"] else "good"


def make_remarks(explanation: Explanation) -> list[Remark]:
    remarks = []
    if explanation.origin:
        remarks.append(Remark("Origin", f"{explanation.origin.op}: {explanation.origin.why}"))
    if explanation.causes:
        cause = explanation.causes[0]
        remarks.append(Remark("Likely cause", f"{cause.name} (confidence {cause.confidence:.0%}): {cause.evidence}"))
        remarks.append(Remark("What to try", cause.advice))
    return remarks


def make_links(rows: Sequence[Row], explanation: Explanation) -> list[Link]:
    """Return links to the origin's row, to further origins and to the table."""
    origin = [Link("the origin's row", link_to_row(explanation.origin.row_index))] if explanation.origin else []
    several_steps = has_several(row.tensor.step for row in rows)
    further = []
    for other in explanation.further[:MAX_FURTHER]:
        step = f", step {rows[other.row_index].tensor.step}" if several_steps else ""
        further.append(
            Link(f"also by itself: {rows[other.row_index].tensor_index}{step}", link_to_row(other.row_index))
        )
    return [*origin, *further, Link(CSV, CSV)]


def make_tiles(rows: Sequence[Row]) -> list[Tile]:
    """Return one tile per result. `bad` is red if there are bad rows; `good` is green if there are good but no bad."""
    count = count_results(rows)
    colour = {"good": True if count["good"] and not count["bad"] else None, "bad": False if count["bad"] else None}
    return [Tile(result, f"{count[result]:,}", RESULT_MEANINGS[result], colour.get(result)) for result in SEVERITY]


# Charts


def list_threshold_levels(rows: Sequence[Row], thresholds: Thresholds | None) -> list[Level]:
    """Return the thresholds of the relative distance: the given one, or the default of each floating-point dtype."""
    if thresholds is not None:
        return [Level(thresholds.euclid, "threshold")] if thresholds.euclid else []
    types = {(row.measures.left.dtype, row.measures.right.dtype) for row in rows if row.measures}
    limits = {find_coarser_dtype(*pair): default_thresholds(*pair).euclid for pair in sorted(types)}
    return [Level(limit, f"threshold of {dtype}") for dtype, limit in limits.items() if dtype and limit]


def make_network_sections(rows: Sequence[Row], explanation: Explanation, levels: Sequence[Level]) -> list[Section]:
    """Return the chart of errors along the network; nothing if no row was measured."""
    origin = explanation.origin
    shown = select_charted(rows, origin.row_index if origin else None)
    if not shown:
        return []
    first = rows[shown[0]].tensor
    rank = f", rank {first.rank}" if has_several(row.tensor.rank for row in rows) else ""
    positions = number_positions([rows[n] for n in shown])
    chart = ScatterChart(
        f"Relative error, step {first.step}{rank}",
        "operators in the order they ran",
        "relative Euclidean distance",
        [make_point(n, rows[n], position) for n, position in zip(shown, positions, strict=True)],
        levels,
        make_spans([rows[n] for n in shown], positions),
        LEGEND,
        marked=shown.index(origin.row_index) if origin and origin.row_index in shown else None,
        mark=f"origin: {origin.op}" if origin else "",
    )
    return [Section("Along the network", describe_chart(rows, shown), [chart])]


def describe_chart(rows: Sequence[Row], shown: Sequence[int]) -> str:
    text = "Every point is a tensor of one step and rank; a click on it shows its row."
    here = (rows[shown[0]].tensor.step, rows[shown[0]].tensor.rank)
    unmeasured = sum(row.measures is None and (row.tensor.step, row.tensor.rank) == here for row in rows)
    return f"{text} Only in the table, since they have no measure: {unmeasured:,}." if unmeasured else text


def select_charted(rows: Sequence[Row], origin: int | None) -> list[int]:
    """Return the numbers of the measured rows of one step and rank (the origin's, else the first), as executed.

    If outputs were dumped, inputs and their gradients are left out: most are outputs of other operators, and the
    gradients of these outputs.
    """
    measured = [n for n, row in enumerate(rows) if row.measures is not None]
    if not measured:
        return []
    first = rows[origin if origin is not None else measured[0]].tensor
    here = [n for n in measured if (rows[n].tensor.step, rows[n].tensor.rank) == (first.step, first.rank)]
    has_outputs = any(rows[n].tensor.role == "output" for n in here)
    charted = [n for n in here if n == origin or not (has_outputs and rows[n].tensor.role in ("input", "grad_input"))]
    return sorted(charted, key=lambda n: (rows[n].tensor.order, n))


def make_point(number: int, row: Row, position: int) -> Point:
    error = row.measures.relative_euclidean if row.measures else math.nan
    return Point(position, error, TONES[row.result], row.tensor_index, link_to_row(number))


def number_positions(rows: Sequence[Row]) -> list[int]:
    """Return each row's position on the axis: one for each order of execution and operator."""
    position_of: dict[tuple[int, str], int] = {}
    return [position_of.setdefault((row.tensor.order, row.op), len(position_of)) for row in rows]


def make_spans(rows: Sequence[Row], positions: Sequence[int]) -> list[Span]:
    """Return the spans of consecutive rows of one stage (`name_stages`): layer1, layer2 …, backward, parameters."""
    spans = []
    for name, group in itertools.groupby(zip(positions, name_stages(rows), strict=True), key=lambda entry: entry[1]):
        numbers = [position for position, _ in group]
        spans.append(Span(min(numbers) - 0.5, max(numbers) + 0.5, name))
    return spans


def name_stages(rows: Sequence[Row]) -> list[str]:
    """Return each row's stage: "backward", "parameters", or the first one to three parts of its operator's name.

    The names get longer until no stage holds most rows of the forward pass.
    """
    names: list[str] = []
    for depth in (1, 2, 3):
        names = [PHASES.get(row.tensor.role) or ".".join(re.split(r"[./]", row.op)[:depth]) for row in rows]
        forward = Counter(name for name, row in zip(names, rows, strict=True) if row.tensor.role not in PHASES)
        if max(forward.values(), default=0) <= MAX_PER_STAGE * forward.total():
            break
    return names


def has_several(values: Iterable[int]) -> bool:
    return len(set(values)) > 1


def make_step_sections(rows: Sequence[Row]) -> list[Section]:
    """Return the chart of the largest and the median error of each step; nothing if there is only one step."""
    if not has_several(row.tensor.step for row in rows):
        return []
    by_step: dict[int, list[float]] = {}
    for row in rows:
        if row.measures is not None:
            by_step.setdefault(row.tensor.step, []).append(row.measures.relative_euclidean)
    steps = sorted(by_step)
    finite = [[error for error in by_step[step] if math.isfinite(error)] for step in steps]
    series = [
        Series("largest", steps, [max(errors, default=math.nan) for errors in finite]),
        Series("median", steps, [statistics.median(errors) if errors else math.nan for errors in finite]),
    ]
    left_out = sum(map(len, by_step.values())) - sum(map(len, finite))
    text = f"Tensors with an error that is NaN or infinite are left out: {left_out:,}." if left_out else ""
    chart = LineChart("Relative error by step", "step", "relative Euclidean distance", series, log_y=True)
    return [Section("Along the steps", text, [chart])]


def make_origin_sections(rows: Sequence[Row], explanation: Explanation, names: tuple[str, str]) -> list[Section]:
    """Return the section about the origin; nothing if there is none."""
    if explanation.origin is None:
        return []
    parts: list[Part] = []
    if explanation.neighbours:
        parts.append(draw_neighbourhood(explanation))
    measures = rows[explanation.origin.row_index].measures
    if measures:
        parts += [part for part in (draw_values(measures, names), draw_distances(measures)) if part]
    if len(explanation.causes) > 1:
        causes = [[c.name, f"{c.confidence:.0%}", c.evidence, c.advice] for c in explanation.causes]
        columns = ["cause", "confidence", "evidence", "what to try"]
        parts.append(Table(columns, causes, "Explanations, the likeliest first"))
    text = f"The origin's tensor is {rows[explanation.origin.row_index].tensor_index}."
    return [Section("Around the origin", text, parts)]


def draw_neighbourhood(explanation: Explanation) -> GraphDrawing:
    """Draw the origin and its neighbours: those that feed it or are fed, else those that ran before and after it."""
    drawn, hidden = select_nearest(explanation.neighbours)
    title, text = "Producers and consumers", "What feeds the origin stands above it, what it feeds below"
    edges = explanation.edges
    if not edges:
        title, text = "Operators in the order they ran", "The dump does not show what feeds the origin or what it feeds"
        edges = tuple(itertools.pairwise(neighbour.op for neighbour in drawn))
    text += "; the number is the largest relative error of the outputs, or of all tensors without outputs."
    if hidden:
        text += f" {hidden} further neighbours are not drawn."
    return GraphDrawing(title, [make_node(neighbour) for neighbour in drawn], edges, text)


def select_nearest(neighbours: Sequence[Neighbour]) -> tuple[list[Neighbour], int]:
    """Return at most MAX_PER_HOP neighbours of each distance, and how many are left out."""
    drawn: list[Neighbour] = []
    for hops in sorted({neighbour.hops for neighbour in neighbours}):
        drawn += [neighbour for neighbour in neighbours if neighbour.hops == hops][:MAX_PER_HOP]
    return drawn, len(neighbours) - len(drawn)


def make_node(neighbour: Neighbour) -> Node:
    error = "no measure" if neighbour.error is None else f"{neighbour.error:.2g}"
    note = ", ".join(filter(None, [neighbour.op_type, error]))
    link = "" if neighbour.row_index is None else link_to_row(neighbour.row_index)
    return Node(neighbour.op, TONES[neighbour.result], neighbour.op, note, link, focus=neighbour.hops == 0)


# Table and sides


def make_table_section(rows: Sequence[Row], explanation: Explanation, names: tuple[str, str]) -> Section:
    text = (
        "A click on a row, or Enter, shows both tensors: their values, distances and largest errors. "
        "The arrow keys go from row to row."
    )
    origin = explanation.origin.row_index if explanation.origin else None
    return Section("Tensors", text, [make_row_table(rows, names, CSV, origin)])


def make_sides_section(drift: Drift, names: tuple[str, str]) -> Section:
    """Return the section about both sides and the options of the comparison."""
    options = drift.options
    limits = options.thresholds.list_limits() if options.thresholds else {}
    facts = {
        "thresholds": options.threshold_source
        or ", ".join(f"{name} {limit:g}" for name, limit in limits.items())
        or "defaults of each type",
        "KL divergence": options.kld,
        **number_notes(drift.notes, drift.left, drift.right),
    }
    sides = [make_side_facts(f"Left: {names[0]}", drift.left), make_side_facts(f"Right: {names[1]}", drift.right)]
    parts = [*sides, Facts(facts, "How they were compared")]
    return Section("The two sides", "The left side is judged by the right one, the reference.", parts)


def number_notes(notes: Sequence[str], *sides: StoredDump) -> dict[str, object]:
    """Return notes as facts `note 1`, `note 2` …, without the notes of the dumps `sides`, which are shown with them."""
    known = tuple(note for side in sides for note in side.notes)  # in `notes` with the prefix "left: " or "right: "
    return {f"note {number}": note for number, note in enumerate((n for n in notes if not n.endswith(known)), 1)}


def make_side_facts(caption: str, side: StoredDump) -> Facts:
    facts: dict[str, object] = {
        "path": str(side.path),
        "kind": side.kind,
        "tensors": len(side.tensors),
        **{name: value for name, value in side.settings.items() if value},
    }
    return Facts({**facts, **number_notes(side.notes)}, caption)
