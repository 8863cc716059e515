"""The output folder of a comparison: report.html, summary.json, and drift.csv if tensors were compared.

All files are first written to a folder beside it and then moved, so an error while they are written changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from viaduct.atomic_files import NO_ROOM, move_files, stage_folder
from viaduct.comparison.drift import Drift
from viaduct.comparison.report import write_report
from viaduct.comparison.summary import SUMMARY_KIND
from viaduct.comparison.table import make_csv
from viaduct.errors import BadValue, DiskFull

SUMMARY = "summary.json"
Writer = Callable[[Path], object]  # writes one file


def check_output_folder(out: Path, force: bool) -> None:
    """Raise BadValue for a file, and without `force` for a folder with content other than an earlier comparison."""
    if out.exists() and not out.is_dir():
        raise BadValue(f"--out {str(out)!r} is a file.", "Give a folder; it is created if it does not exist.")
    if force or not out.exists() or not any(out.iterdir()) or is_comparison_output(out):
        return
    raise BadValue(
        f"--out {str(out)!r} is neither empty nor an earlier comparison.",
        "Give another folder, or --force to write drift.csv, report.html and summary.json into it.",
    )


def is_comparison_output(folder: Path) -> bool:
    try:
        record = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("kind") == SUMMARY_KIND


def write_drift(drift: Drift, record: dict[str, Any], out: Path) -> None:
    """Write the page, the table and the summary of a comparison of tensors."""
    files = {
        "drift.csv": lambda path: path.write_bytes(make_csv(drift.rows)),
        "report.html": lambda path: write_report(path, drift),
    }
    write_output(out, record, files)


def write_output(out: Path, summary: Mapping[str, Any], writers: Mapping[str, Writer]) -> None:
    """Write all files to a draft folder, then move them, the summary last.

    Files of an earlier comparison that this one does not write are removed; other files stay.
    """
    out = Path(os.path.abspath(out))
    try:
        with stage_folder(out) as draft:
            for name, write in writers.items():
                write(draft / name)
            (draft / SUMMARY).write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            for name in {"drift.csv", "report.html"} - writers.keys():  # files of an earlier comparison
                (out / name).unlink(missing_ok=True)
            move_files(draft, out, last=SUMMARY)
    except OSError as error:
        if error.errno in NO_ROOM:
            advice = "Free some space, or give another --out."
            raise DiskFull(f"the disk is full: {str(out)!r} was not written.", advice) from None
        message = f"--out {str(out)!r} cannot be written: {error.strerror or error}."
        raise BadValue(message, "Give another folder.") from None
