"""Runs that failed, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.carrying.running import Run
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.summary import Summary


def make_failed_run(folder: Path, frames: list[str], failure: str, **more: Any) -> Run:
    """Return a run whose output ends with this traceback, in which OWN is replaced by the script's path."""
    record, script = folder / "runs" / "original", folder / "train.py"
    record.mkdir(parents=True)
    lines = [f'  File "{script if file == "OWN" else file}", line 3, in f' for file in frames]
    (record / "output.txt").write_text("\n".join(["Traceback (most recent call last):", *lines, failure, ""]))
    plan = Plan("original", "torch", str(script), (), str(record), str(record / "work"), source_tree=str(folder))
    summary = Summary("viaduct carry", "original", "torch", str(script), [], 1, 7, 1, failure=failure, **more)
    return Run("original", plan, summary, None)  # type: ignore[arg-type]
