"""Table of runs as plain text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viaduct.atomic_files import write_file
from viaduct.runs.facts import FIELDS, RunFacts
from viaduct.runs.finding import Problem
from viaduct.runs.listing import Listing
from viaduct.terminal import align_columns, escape_controls

DASH = "–"
COLUMNS = ("name", "recipe", "data", "code", "device", "steps", "best", "last", "images/s", "state", "age")
TEXT_COLUMNS = [COLUMNS.index(name) for name in ("name", "recipe", "data", "code", "device", "state")]
MAX_LISTED_PROBLEMS = 10
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs text that begins so as a formula


def format_row(run: RunFacts, now: float) -> list[str]:
    return [
        run.name,
        run.recipe,
        run.data or DASH,
        run.code or DASH,
        run.short_device or DASH,
        format_steps(run),
        format_percent(run.best_top1),
        format_percent(run.top1),
        DASH if run.images_per_s is None else format_speed(run.images_per_s),
        run.state,
        format_age(run.changed, now),
    ]


def format_steps(run: RunFacts) -> str:
    return f"{run.steps:,}/{run.steps_total:,}" if run.steps_total else f"{run.steps:,}"


def format_percent(fraction: float | None) -> str:
    return DASH if fraction is None else f"{100 * fraction:.2f}"


def format_speed(images_per_s: float) -> str:
    return f"{images_per_s:,.0f}" if images_per_s >= 10 else f"{images_per_s:.2g}"


def format_age(changed: float | None, now: float) -> str:
    """Return the time since `changed` in the largest unit that gives at least 2: 90 min, not 1 h."""
    if changed is None:
        return DASH
    seconds = max(0.0, now - changed)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def render_table(runs: Sequence[RunFacts], max_rows: int | None = None) -> str:
    """Return the table of runs, with a last line that counts them by state."""
    shown = runs if max_rows is None else runs[:max_rows]
    now = time.time()
    table = "\n".join(align_columns([COLUMNS, *(format_row(run, now) for run in shown)], TEXT_COLUMNS))
    limit = "" if len(shown) == len(runs) else f"; the first {len(shown):,} are shown, --all shows every one"
    return f"{table}\n{count_states(runs)}{limit}"


def count_states(runs: Sequence[RunFacts]) -> str:
    states = [run.state for run in runs]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    return f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}: {counts}" if runs else "no run passes the filters"


def render_problems(problems: Sequence[Problem], show_all: bool) -> str:
    """Return the folders that are not listed as runs, with the reasons; only the first ones unless `show_all`."""
    subject = "folder is" if len(problems) == 1 else "folders are"
    reasons = [(problem.path, problem.reason) for problem in problems]
    return render_reasons(f"{subject} not listed as runs", reasons, show_all)


def render_damage(runs: Sequence[RunFacts], show_all: bool) -> str:
    """Return the listed runs with damaged or missing files, and the damage; empty if there are none."""
    reasons = [(run.name, "; ".join(run.damage)) for run in runs if run.damage]
    subject = "run has" if len(reasons) == 1 else "runs have"
    return render_reasons(f"{subject} damaged or missing files", reasons, show_all) if reasons else ""


def render_reasons(headline: str, reasons: list[tuple[str, str]], show_all: bool) -> str:
    """Return a line with the number of reasons, and below it names and reasons; only the first unless `show_all`."""
    shown = reasons if show_all else reasons[:MAX_LISTED_PROBLEMS]
    lines = [f"  {escape_controls(name)}: {escape_controls(reason)}" for name, reason in shown]
    if len(shown) < len(reasons):
        lines.append(f"  … and {len(reasons) - len(shown):,} more; --all names them")
    return "\n".join([f"{len(reasons):,} {headline}:", *lines])


def to_json(listing: Listing, runs: Sequence[RunFacts]) -> str:
    """Return runs and problems as JSON, each run with FIELDS, further facts and the fields of its recipe."""
    record = {
        "runs": [build_record(run) for run in runs],
        "problems": [vars(problem) for problem in listing.problems],
        "notes": listing.notes,
    }
    return json.dumps(record, indent=1)


def build_record(run: RunFacts) -> dict[str, Any]:
    names = ["reason", "best_step", "seed", "images", "id", "init", "source", "modified_files", "damaged_lines"]
    facts = {name: getattr(run, name) for name in [*names, "damage", "fields"]}
    return {"path": run.path, **{name: read(run) for name, read in FIELDS.items()}, **facts}


def write_csv(runs: Sequence[RunFacts], path: Path) -> None:
    """Write runs as a CSV file, atomically."""
    write_file(path, render_csv(runs).encode("utf-8", "backslashreplace"))


def render_csv(runs: Sequence[RunFacts]) -> str:
    """Return the runs as CSV: a row for each run, a column for each of FIELDS and for each field of a recipe."""
    fields = list(dict.fromkeys(name for run in runs for name in run.fields))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", *FIELDS, "best_step", "reason", *(f"recipe.{name}" for name in fields)])
    for run in runs:
        facts = [run.path, *(read(run) for read in FIELDS.values()), run.best_step, run.reason]
        writer.writerow([format_csv_cell(value) for value in [*facts, *(run.fields.get(name) for name in fields)]])
    return text.getvalue()


def format_csv_cell(value: Any) -> Any:
    """Return a value as a cell of the CSV; text that looks like a formula gets an apostrophe."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value
