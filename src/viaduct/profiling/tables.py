"""Tables of a profile: the CSV files beside profile.json.

    step_trace.csv   msprof's columns in msprof's order, then rank, wait for the loader, and interruptions as a note
    operators.csv    a row for each operator and signature, the most expensive first
    kernels.csv      a row for each kernel
    system.csv       a row for each sample, a column for each figure

Missing values are N/A, as in msprof.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from viaduct.atomic_files import replace_file

from .record import Kernel, Operator, Profile

MISSING = "N/A"
STEP_COLUMNS = (
    *("Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)"),
    *("FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID"),
)
REDUCE_COLUMNS = ("Reduce Start(us)", "Reduce Duration(us)")
VIADUCT_COLUMNS = ("Rank", "Loader Wait(us)", "Note")
Row = list[Any]


def make_step_table(profile: Profile) -> tuple[list[str], list[Row]]:
    """Return the columns and rows of step_trace.csv; Device_id is the rank, which has one device."""
    most = max((len(step.collectives) for step in profile.steps), default=0)
    columns = [*STEP_COLUMNS, *REDUCE_COLUMNS * most, *VIADUCT_COLUMNS]
    rows = []
    for step in profile.steps:
        points = [step.forward_start_us, step.backward_end_us, step.end_us]
        spans = [step.iteration_us, step.forward_backward_us, step.update_tail_us, step.data_tail_us]
        reduces = [time for collective in step.collectives for time in (collective.start_us, collective.duration_us)]
        padding = [None] * (2 * most - len(reduces))  # columns of collectives that this step does not have
        added = [step.rank, step.loader_wait_us, step.interrupted_by]
        model_id = None  # only msprof has one
        rows.append([step.rank, step.number, *points, *spans, model_id, *reduces, *padding, *added])
    return columns, rows


def make_operator_table(profile: Profile) -> tuple[list[str], list[Row]]:
    return make_record_table(Operator, sorted(profile.operators, key=lambda operator: -operator.cost_us))


def make_kernel_table(profile: Profile) -> tuple[list[str], list[Row]]:
    return make_record_table(Kernel, sorted(profile.kernels, key=lambda kernel: -kernel.time_us))


def make_record_table(record_class: Any, records: Sequence[Any]) -> tuple[list[str], list[Row]]:
    """Return a column for each field of a dataclass, and a row for each of the records."""
    columns = [field.name for field in dataclasses.fields(record_class)]
    return columns, [[getattr(record, name) for name in columns] for record in records]


def make_system_table(profile: Profile) -> tuple[list[str], list[Row]]:
    names = list(dict.fromkeys(name for sample in profile.samples for name in sample.values))
    rows = [[sample.time_us, *(sample.values.get(name) for name in names)] for sample in profile.samples]
    return ["time_us", *names], rows


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a table atomically; None becomes N/A."""
    with replace_file(path, durable=False) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([format_cell(value) for value in row] for row in rows)
        text.flush()
        text.detach()


def format_cell(value: Any) -> Any:
    if value is None:
        return MISSING
    return f"{value:.3f}" if isinstance(value, float) else value
