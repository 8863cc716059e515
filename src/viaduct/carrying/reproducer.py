"""OUT/reproducer.txt: details of a fault of viaduct that the user may report.

It has the command, the versions, the lines that failed and the traceback. It quotes lines of the script, so it is plain
text that the user can read before sending it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from viaduct import __version__
from viaduct.carrying.carry import CarryResult
from viaduct.carrying.faults import find_fault
from viaduct.carrying.running import Run
from viaduct.migration.source import lines_of

CONTEXT_LINES = 5  # of the script before and after the one that failed
MAX_TRACEBACK_LINES = 80


def write(result: CarryResult, path: Path) -> None:
    """Write the file if a run failed through a fault of viaduct."""
    run = result.failed_run
    if result.verdict != "could not run" or run is None or find_fault(run).owner != "viaduct":
        return
    path.write_text("\n".join(make_lines(result, run)) + "\n", encoding="utf-8", errors="backslashreplace")


def make_lines(result: CarryResult, run: Run) -> Iterator[str]:
    yield f"Fault: {find_fault(run).text}"
    yield f"Command: {result.request.command}"
    plan = run.plan
    yield f"Run: {run.name}, on {plan.platform}, {plan.framework}, {plan.ranks} rank(s), {run.summary.steps} steps"
    versions = {"viaduct": __version__, "python": platform.python_version(), **run.summary.versions}
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"Machine: {platform.platform()}"
    if run.failed_at is not None:
        file, line = run.failed_at
        yield ""
        yield f"{file}, line {line}:"
        yield from quote_lines(Path(file), line)
    yield ""
    yield "Traceback, or the last lines of the output:"
    yield from extract_traceback(run)


def quote_lines(path: Path, line: int) -> Iterator[str]:
    if not path.is_file():
        return
    lines = lines_of(path.read_text(encoding="utf-8", errors="replace"))
    for number in range(max(1, line - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES) + 1):
        yield f"{'>' if number == line else ' '} {number:5d}  {lines[number - 1]}"


def extract_traceback(run: Run) -> list[str]:
    """Return the last lines of the failed rank's last traceback, or of its output if there is no traceback."""
    lines = run.output_of_rank(run.summary.failed_rank).splitlines()
    begins = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    return lines[begins[-1] :][-MAX_TRACEBACK_LINES:] if begins else lines[-MAX_TRACEBACK_LINES:]
