"""The HTML page of a comparison: the answer first, then where it shows, then every row.

It maps rows onto the parts of `reporting`, which knows nothing of tensors; the table itself is report_rows.py.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

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

from .report_rows import SEVERITY, TONES, address, distance_bars, row_table, value_histogram
from .rows import RESULTS, Explanation, Neighbour, Row, counts
from .tensors import Side
from .thresholds import Thresholds, default_thresholds
from .ulps import coarser_dtype

MOST_A_HOP = 4
"""Neighbours drawn at one distance from the origin; a drawing with more is hard to read."""
MOST_FURTHER = 6
MOST_OF_ONE = 0.6
"""A stage with a larger share of all operators than this is named too coarsely."""
PHASES = {
    **dict.fromkeys(("grad_input", "grad_output"), "backward"),
    **dict.fromkeys(("parameter", "gradient", "update"), "parameters"),
}
LEGEND: list[tuple[Tone, str]] = [(TONES[result], result) for result in RESULTS]
MEANING = {
    "good": "within the thresholds",
    "bad": "beyond a threshold, or NaN, Inf or zeros on one side",
    "flag": "not bad, but worth a look: the reason says why",
    "refused": "could not be compared; never counts as good",
    "new": "has no partner: inserted or fused away by a compiler",
}


def write_report(
    path: Path,
    rows: Sequence[Row],
    left: Side,
    right: Side,
    explanation: Explanation,
    *,
    thresholds: Thresholds | None = None,
    threshold_source: str = "",
    settings: Mapping[str, object] | None = None,
    notes: Sequence[str] = (),
    csv: str = "drift.csv",
) -> None:
    """Write the page. `thresholds` None: defaults by dtype, or `threshold_source` says how they were found.

    `settings`: further options; `csv` is the table beside the page.
    """
    names = short_names(left.path, right.path)
    compared = {
        **describe_comparison(rows, thresholds, threshold_source),
        **(settings or {}),
        **number_notes(notes, left, right),
    }
    sections = [
        *network_sections(rows, explanation, [] if threshold_source else threshold_levels(rows, thresholds)),
        *step_sections(rows),
        *origin_sections(rows, explanation, names),
        all_rows(rows, explanation, names, csv),
        both_sides(left, right, names, compared),
    ]
    title = f"{names[0]} against {names[1]}"
    subtitle = f"Drift of the left side, {left.path}, from the right one, {right.path}"
    lead = [make_answer(rows, explanation, csv)]
    write_page(Page(title, subtitle, tiles(rows), sections, lead, kind="comparison of tensors"), path)


def short_names(left: Path, right: Path) -> tuple[str, str]:
    """Return the parts that differ: `npu` and `gpu` for runs/npu/dump and runs/gpu/dump."""
    ours, theirs = list(left.parts), list(right.parts)
    while len(ours) > 1 and len(theirs) > 1 and ours[-1] == theirs[-1]:
        ours.pop()
        theirs.pop()
    if ours[-1:] == theirs[-1:]:
        return "left", "right"
    return ours[-1] if ours else "left", theirs[-1] if theirs else "right"


# The answer


def make_answer(rows: Sequence[Row], explanation: Explanation, csv: str) -> Callout:
    """Return the callout with headline, remarks and links."""
    headline = explanation.headline[:1].upper() + explanation.headline[1:]
    return Callout(overall_tone(rows), headline, remarks(explanation), links(rows, explanation, csv))


def overall_tone(rows: Sequence[Row]) -> Tone:
    """Return the tone of the worst result."""
    found = counts(rows)
    if found["bad"]:
        return "bad"
    return "warn" if found["flag"] or found["refused"] or not found["good"] else "good"


def remarks(explanation: Explanation) -> list[Remark]:
    """Return origin, likely cause and advice."""
    found = []
    if explanation.origin:
        found.append(Remark("Origin", f"{explanation.origin.op}: {explanation.origin.why}"))
    if explanation.causes:
        cause = explanation.causes[0]
        found.append(Remark("Likely cause", f"{cause.name} ({format_confidence(cause.confidence)}): {cause.evidence}"))
        found.append(Remark("What to try", cause.advice))
    return found


def format_confidence(share: float) -> str:
    return f"{100 * share:.0f} % sure"


def links(rows: Sequence[Row], explanation: Explanation, csv: str) -> list[Link]:
    """Return links to the origin's row, to further origins and to the table."""
    origin = [Link("the origin's row", address(explanation.origin.row))] if explanation.origin else []
    several_steps = has_several(row.stored.step for row in rows)
    further = [
        Link(f"also by itself: {name_row(rows[each.row], several_steps)}", address(each.row))
        for each in explanation.further[:MOST_FURTHER]
    ]
    return [*origin, *further, Link(csv, csv)]


def name_row(row: Row, several_steps: bool) -> str:
    """Return the tensor's name, with its step where there are several."""
    return f"{row.tensor_index}, step {row.stored.step}" if several_steps else row.tensor_index


def tiles(rows: Sequence[Row]) -> list[Tile]:
    """Return one tile per result."""
    found = counts(rows)
    judged = {"good": True if found["good"] and not found["bad"] else None, "bad": False if found["bad"] else None}
    return [Tile(result, f"{found[result]:,}", MEANING[result], judged.get(result)) for result in SEVERITY]


# Where it shows


def threshold_levels(rows: Sequence[Row], thresholds: Thresholds | None) -> list[Level]:
    """Return the relative distances beyond which a row is bad: the given one, or the defaults of its dtype."""
    if thresholds is not None:
        return [Level(thresholds.euclid, "threshold")] if thresholds.euclid else []
    types = {(row.measures.left.dtype, row.measures.right.dtype) for row in rows if row.measures}
    found = {coarser_dtype(*pair): default_thresholds(*pair).euclid for pair in sorted(types)}
    return [Level(limit, f"threshold of {dtype}") for dtype, limit in found.items() if dtype and limit]


def network_sections(rows: Sequence[Row], explanation: Explanation, levels: Sequence[Level]) -> list[Section]:
    """Return the chart of errors along the network."""
    origin = explanation.origin
    shown = select_charted(rows, origin.row if origin else None)
    if not shown:
        return []
    where = rows[shown[0]].stored
    rank = f", rank {where.rank}" if has_several(row.stored.rank for row in rows) else ""
    order = positions([rows[n] for n in shown])
    chart = ScatterChart(
        f"Relative error, step {where.step}{rank}",
        "operators in the order they ran",
        "relative Euclidean distance",
        [point(n, rows[n], position) for n, position in zip(shown, order, strict=True)],
        levels,
        spans([rows[n] for n in shown], order),
        LEGEND,
        marked=shown.index(origin.row) if origin and origin.row in shown else None,
        mark=f"origin: {origin.op}" if origin else "",
    )
    return [Section("Along the network", network_text(rows, shown), [chart])]


def network_text(rows: Sequence[Row], shown: Sequence[int]) -> str:
    text = "Every point is a tensor; a click on it shows its row."
    where = rows[shown[0]].stored
    silent = sum(r.measures is None and (r.stored.step, r.stored.rank) == (where.step, where.rank) for r in rows)
    return text if not silent else f"{text} Only in the table, since they have no measure: {silent:,}."


def select_charted(rows: Sequence[Row], origin: int | None) -> list[int]:
    """Return the measured rows of one step and rank (the origin's, else the first), in order of execution.

    The inputs of an operator are the outputs of others, so they are left out where outputs were dumped too.
    """
    measured = [n for n, row in enumerate(rows) if row.measures is not None]
    if not measured:
        return []
    where = rows[origin if origin is not None else measured[0]].stored
    here = [n for n in measured if (rows[n].stored.step, rows[n].stored.rank) == (where.step, where.rank)]
    outputs = any(rows[n].stored.role == "output" for n in here)
    kept = [n for n in here if n == origin or not (outputs and rows[n].stored.role in ("input", "grad_input"))]
    return sorted(kept, key=lambda n: (rows[n].stored.order, n))


def point(number: int, row: Row, order: int) -> Point:
    error = row.measures.relative_euclidean if row.measures else math.nan
    return Point(order, error, TONES[row.result], row.tensor_index, address(number))


def positions(rows: Sequence[Row]) -> list[int]:
    """Return each row's position on the axis: one per call and operator."""
    position_of: dict[tuple[int, str], int] = {}
    return [position_of.setdefault((row.stored.order, row.op), len(position_of)) for row in rows]


def spans(rows: Sequence[Row], positions: Sequence[int]) -> list[Span]:
    """Return the spans of consecutive rows of one stage: layer1, layer2 … forward, then backward, then parameters."""
    names = stage_names(rows)
    runs = [
        (name, [position for position, _ in group])
        for name, group in groupby(zip(positions, names, strict=True), key=lambda entry: entry[1])
    ]
    return [Span(min(run) - 0.5, max(run) + 0.5, name) for name, run in runs]


def stage_names(rows: Sequence[Row]) -> list[str]:
    """Return name prefixes, long enough that no stage holds most operators."""
    found: list[str] = []
    for depth in (1, 2, 3):
        found = [PHASES.get(row.stored.role) or ".".join(re.split(r"[./]", row.op)[:depth]) for row in rows]
        forward = Counter(name for name, row in zip(found, rows, strict=True) if row.stored.role not in PHASES)
        if max(forward.values(), default=0) <= MOST_OF_ONE * forward.total():
            break
    return found


def has_several(values: Iterable[int]) -> bool:
    """Return True if the values are not all equal."""
    return len(set(values)) > 1


def step_sections(rows: Sequence[Row]) -> list[Section]:
    """Return the chart of errors by step."""
    if not has_several(row.stored.step for row in rows):
        return []
    by_step: dict[int, list[float]] = {}
    for row in rows:
        if row.measures is not None:
            by_step.setdefault(row.stored.step, []).append(row.measures.relative_euclidean)
    steps = sorted(by_step)
    finite = [[error for error in by_step[step] if math.isfinite(error)] for step in steps]
    series = [
        Series("largest", steps, [max(errors, default=math.nan) for errors in finite]),
        Series("median", steps, [statistics.median(errors) if errors else math.nan for errors in finite]),
    ]
    lost = sum(map(len, by_step.values())) - sum(map(len, finite))
    text = f"Tensors whose error is NaN or infinite have no place in these lines: {lost:,}." if lost else ""
    chart = LineChart("Relative error by step", "step", "relative Euclidean distance", series, log_y=True)
    return [Section("Along the steps", text, [chart])]


def origin_sections(rows: Sequence[Row], explanation: Explanation, names: tuple[str, str]) -> list[Section]:
    """Return the section about the origin."""
    if explanation.origin is None:
        return []
    parts: list[Part] = []
    if explanation.neighbours:
        parts.append(neighbourhood(explanation))
    measures = rows[explanation.origin.row].measures
    if measures:
        parts += [part for part in (value_histogram(measures, names), distance_bars(measures)) if part]
    if len(explanation.causes) > 1:
        parts.append(other_causes(explanation))
    text = f"Both tensors of {rows[explanation.origin.row].tensor_index}, and the operators before and after it."
    return [Section("Around the origin", text, parts)]


def neighbourhood(explanation: Explanation) -> GraphDrawing:
    drawn, hidden = select_nearest(explanation.neighbours)
    text = "What feeds the origin stands above it, what it feeds below; the number is the relative error of the output."
    if hidden:
        text += f" {hidden} further neighbours are not drawn."
    return GraphDrawing("Producers and consumers", [node(each) for each in drawn], explanation.edges, text)


def select_nearest(neighbours: Sequence[Neighbour]) -> tuple[list[Neighbour], int]:
    """Return a few neighbours of each distance, and how many are left out."""
    drawn: list[Neighbour] = []
    for hops in sorted({each.hops for each in neighbours}):
        drawn += [each for each in neighbours if each.hops == hops][:MOST_A_HOP]
    return drawn, len(neighbours) - len(drawn)


def node(neighbour: Neighbour) -> Node:
    error = "no measure" if neighbour.error is None else f"{neighbour.error:.2g}"
    note = ", ".join(filter(None, [neighbour.op_type, error]))
    link = "" if neighbour.row is None else address(neighbour.row)
    return Node(neighbour.op, TONES[neighbour.result], neighbour.op, note, link, focus=neighbour.hops == 0)


def other_causes(explanation: Explanation) -> Table:
    rows = [[each.name, format_confidence(each.confidence), each.evidence, each.advice] for each in explanation.causes]
    return Table(["cause", "confidence", "evidence", "what to try"], rows, "Explanations, the likeliest first")


# Every row, and the two sides


def all_rows(rows: Sequence[Row], explanation: Explanation, names: tuple[str, str], csv: str) -> Section:
    text = (
        "A click on a row, or Enter, shows both tensors: their values, distances and largest errors. "
        "The arrow keys go from row to row."
    )
    origin = explanation.origin.row if explanation.origin else None
    return Section("Tensors", text, [row_table(rows, names, csv, origin)])


def both_sides(left: Side, right: Side, names: tuple[str, str], settings: Mapping[str, object]) -> Section:
    sides = [side_facts(f"Left: {names[0]}", left), side_facts(f"Right: {names[1]}", right)]
    parts = [*sides, Facts(settings, "How they were compared")]
    return Section("The two sides", "Left is the accelerator's, right is taken for the truth.", parts)


def describe_comparison(rows: Sequence[Row], thresholds: Thresholds | None, threshold_source: str) -> dict[str, object]:
    """Return the thresholds and the KL divergence reading."""
    readings = sorted({row.measures.kld_reading for row in rows if row.measures})
    limits = ", ".join(f"{name} {limit:g}" for name, limit in thresholds.set_limits().items()) if thresholds else ""
    return {"thresholds": threshold_source or limits or "defaults of each type", "KL divergence": ", ".join(readings)}


def number_notes(notes: Sequence[str], *sides: Side) -> dict[str, object]:
    """Return notes as facts, without those that a side shows itself."""
    known = [note for side in sides for note in side.notes]
    fresh = [note for note in notes if not any(note.endswith(each) for each in known)]
    return {f"note {number}": note for number, note in enumerate(fresh, 1)}


def side_facts(caption: str, side: Side) -> Facts:
    facts: dict[str, object] = {
        "path": str(side.path),
        "kind": side.kind,
        "tensors": len(side.tensors),
        **{name: value for name, value in side.settings.items() if value},
    }
    return Facts({**facts, **number_notes(side.notes)}, caption)
