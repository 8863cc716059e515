"""Parts of a step on a device: computing, communication that does not overlap computing, free time.

torch_npu's profiler writes these as step_trace_time.csv; for other traces they are computed here. Time in which several
streams run counts once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from .events import Span, join_spans, remove_spans, sum_spans
from .record import Collective, Profile, Step

STEP_TRACE_TABLE = "step_trace_time"  # name of the table in `Profile.tables`
COMPUTING, EXPOSED, FREE = "computing", "communication(not overlapped)", "free"
STEP_PARTS = (COMPUTING, EXPOSED, FREE)  # columns of the table, after the step's number


def split_steps(steps: Sequence[Step], computing: Iterable[Span], collectives: Iterable[Collective]) -> dict[str, Any]:
    """Return the table of the steps' parts; a step without a known previous end is left out."""
    busy = join_spans(computing)
    communicating = join_spans((row.start_us, row.start_us + row.duration_us) for row in collectives)
    exposed = remove_spans(communicating, busy)
    rows = []
    for step in steps:
        if step.previous_end_us is None:
            continue
        times = [sum_spans(cut_spans(spans, step.previous_end_us, step.end_us)) for spans in (busy, exposed)]
        rows.append([step.number, *times, max(step.iteration_us - sum(times), 0.0)])
    return {"columns": ["step", *STEP_PARTS], "rows": rows}


def cut_spans(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """Return the parts of disjoint, sorted spans that lie between `start` and `end`."""
    low, high = max(bisect_left(spans, (start,)) - 1, 0), bisect_left(spans, (end,))
    return [(max(first, start), min(last, end)) for first, last in spans[low:high] if last > start]


def read_step_parts(profile: Profile) -> dict[str, list[float]]:
    """Return the parts of each step and their sum ("E2E", end to end) from the profile's table; {} without a table."""
    table = profile.tables.get(STEP_TRACE_TABLE)
    if not table or not set(STEP_PARTS) <= set(table["columns"]):
        return {}
    positions = [table["columns"].index(name) for name in STEP_PARTS]
    rows = [[row[position] for position in positions] for row in table["rows"]]
    complete = [row for row in rows if all(isinstance(value, int | float) for value in row)]
    if not complete:
        return {}
    split = {name: [float(row[number]) for row in complete] for number, name in enumerate(STEP_PARTS)}
    return {"E2E": [float(sum(row)) for row in complete], **split}
