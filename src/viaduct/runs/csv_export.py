"""Export of runs as CSV: a row for each run, a column for each of `facts.FIELDS` and for each field of a recipe."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viaduct.atomic_files import write_file
from viaduct.runs.facts import FIELDS, RunFacts

RECIPE_PREFIX = "recipe."
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_csv(runs: Sequence[RunFacts], path: Path) -> None:
    """Write runs as a CSV file, atomically."""
    write_file(path, render_csv(runs).encode("utf-8", "backslashreplace"))


def render_csv(runs: Sequence[RunFacts]) -> str:
    """Return the runs as CSV; a field that a run's recipe does not have is empty."""
    fields = list(dict.fromkeys(name for run in runs for name in run.fields))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", *FIELDS, "best_step", "reason", *(RECIPE_PREFIX + name for name in fields)])
    for run in runs:
        facts = [run.path, *(read(run) for read in FIELDS.values()), run.best_step, run.reason]
        writer.writerow([format_cell(value) for value in [*facts, *(run.fields.get(name) for name in fields)]])
    return text.getvalue()


def format_cell(value: Any) -> Any:
    """Return a value as a cell; text that a spreadsheet would take for a formula gets an apostrophe."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value
