"""The output folder of a carry: a new one, or one whose old content is moved aside.

OUT/report.html  OUT/carry.json  OUT/migrated/  OUT/runs/original/  OUT/runs/migrated/  OUT/comparison/report.html
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viaduct.errors import BadRun, BadValue

PAGE_FILE, RECORD_FILE = "report.html", "carry.json"
COPY_FOLDER, RUNS_FOLDER, COMPARISON_FOLDER = "migrated", "runs", "comparison"
BASELINE_FILE = "baseline.csv"  # accuracy and speed, with cells for the user to fill in
REPRODUCER_FILE = "reproducer.txt"  # only where viaduct itself is at fault


def check_output_folder(source: Path, out: Path, force: bool) -> None:
    """Raise BadValue or BadRun if the output folder cannot be used, before any work is done."""
    aim, project = out.resolve(), source.resolve()
    if aim == project or aim in project.parents:
        raise BadValue(f"--out {out} contains the script or project that is carried.", "Name another folder.")
    if project.is_dir() and project in aim.parents:
        advice = "Name a folder beside it, so that it is not copied too."
        raise BadValue(f"--out {out} lies within {str(source)!r}.", advice)
    if os.path.lexists(out) and not out.is_dir():
        raise BadValue(f"--out {out} exists and is not a folder.", "Name a new folder.")
    if out.is_dir() and any(out.iterdir()) and not force:
        advice = "Name another, or give --force: the old one is renamed and kept beside it."
        raise BadRun(f"--out {out} is there already.", advice)
    parent = next(folder for folder in aim.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise BadValue(f"--out {out}: {parent} cannot be written to.", "Name a folder of your own.")


@contextmanager
def prepare_folder(out: Path) -> Iterator[Path | None]:
    """Provide an empty folder and yield where its old content was moved; restore that content after an error."""
    empty = out.is_dir()
    aside = move_aside(out) if out.is_dir() and any(out.iterdir()) else None
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield aside
    except BaseException:  # an interruption too
        shutil.rmtree(out, ignore_errors=True)
        if aside is not None:
            aside.rename(out)
        elif empty:
            out.mkdir()
        raise


def move_aside(out: Path) -> Path:
    """Rename a folder to the first free number: carried becomes carried.1."""
    number = 1
    while os.path.lexists(aside := out.with_name(f"{out.name}.{number}")):
        number += 1
    out.rename(aside)
    return aside
