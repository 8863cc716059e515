"""One row a run, as CSV: the fields of the table and those of every recipe."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viaduct.atomic_files import replace_file
from viaduct.runs.facts import FIELDS, RunFacts

PREFIX = "recipe."
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(runs: Sequence[RunFacts], path: Path) -> None:
    """Write the file whole or not at all."""
    with replace_file(path) as file:
        file.write(render_csv(runs).encode("utf-8", "backslashreplace"))


def render_csv(runs: Sequence[RunFacts]) -> str:
    """Return the runs as CSV."""
    fields = list(dict.fromkeys(name for run in runs for name in run.fields))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", *FIELDS, "best_step", "reason", *(PREFIX + name for name in fields)])
    for run in runs:
        known = [run.path, *(read(run) for read in FIELDS.values()), run.best_step, run.reason]
        writer.writerow([write_cell(value) for value in [*known, *(run.fields.get(name) for name in fields)]])
    return text.getvalue()


def write_cell(value: Any) -> Any:
    """Return a value as a cell; text that a spreadsheet would take for a formula gets an apostrophe."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value
