"""The output folder of a carry. If the folder has content already, the content is moved to another folder first.

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
MIGRATED_FOLDER, RUNS_FOLDER, COMPARISON_FOLDER = "migrated", "runs", "comparison"
BASELINE_FILE = "baseline.csv"  # accuracy and speed, with cells for the user to fill in
REPRODUCER_FILE = "reproducer.txt"  # written only if viaduct is at fault


def check_output_folder(source: Path, out: Path, force: bool) -> None:
    """Raise BadValue or BadRun if the output folder cannot be used. `source`: the script or the project's folder."""
    target, project = out.resolve(), source.resolve()
    if target == project or target in project.parents:
        raise BadValue(f"--out {out} contains the script or project that is carried.", "Name another folder.")
    if project.is_dir() and project in target.parents:
        raise BadValue(
            f"--out {out} lies within {str(source)!r}.",
            "Name a folder outside the project: the whole project is copied.",
        )
    if os.path.lexists(out) and not out.is_dir():
        raise BadValue(f"--out {out} exists and is not a folder.", "Name a new folder.")
    if out.is_dir() and any(out.iterdir()) and not force:
        advice = "Name another, or give --force: the old one is renamed and kept beside it."
        raise BadRun(f"--out {out} exists already.", advice)
    parent = next(folder for folder in target.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise BadValue(f"--out {out}: {parent} cannot be written to.", "Name a folder that you may write to.")


@contextmanager
def prepare_folder(out: Path) -> Iterator[Path | None]:
    """Provide an empty folder for the block; yield where its old content is now, or None. An error restores it."""
    existed = out.is_dir()
    old_output = move_aside(out) if existed and any(out.iterdir()) else None
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield old_output
    except BaseException:  # also KeyboardInterrupt
        shutil.rmtree(out, ignore_errors=True)
        if old_output is not None:
            old_output.rename(out)
        elif existed:
            out.mkdir()
        raise


def move_aside(out: Path) -> Path:
    """Add the first free number to a folder's name: carried.1 for carried."""
    number = 1
    while os.path.lexists(new_name := out.with_name(f"{out.name}.{number}")):
        number += 1
    out.rename(new_name)
    return new_name
