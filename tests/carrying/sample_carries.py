"""Options, sides and results of a carry, made up without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.carrying.carry import CarryResult
from viaduct.carrying.request import Request
from viaduct.carrying.running import Run
from viaduct.carrying.sides import Sides, match_lines
from viaduct.migration.diffing import AlignedLine, compare_texts
from viaduct.migration.options import Options


def diff(old: str, new: str) -> list[AlignedLine]:
    return compare_texts(old, new, match_lines(old, new))


def make_sides(folder: Path, old: str = "", new: str = "", entry: str = "train.py") -> Sides:
    """Return the sides of a project with one script, which is not written to disk."""
    return Sides(folder, folder / "migrated", entry, diffs={entry: diff(old, new)})


def make_request(folder: Path, **options: Any) -> Request:
    return Request(folder / "train.py", folder / "out", Options(), command="viaduct carry train.py", **options)


def make_carry_result(folder: Path, run: Run, **result: Any) -> CarryResult:
    """Return a result whose original and golden run are `run`; the default verdict is "could not run"."""
    return CarryResult(make_request(folder), make_sides(folder), "torch", run, run, **result)
