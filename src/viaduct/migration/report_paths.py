"""Check of a report's path before the work: a report replaces nothing but an earlier report of its own kind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from viaduct.errors import BadValue
from viaduct.migration.walk import is_script

HEAD_BYTES = 4096
"""Number of bytes at the beginning of a page that contain its generator tag."""
GENERATOR_TAG = re.compile(rb'<meta name="generator" content="viaduct [^"]* migrate">')


def check_report_paths(path: Path, reports: Mapping[str, Path | None], out: Path | None, force: bool) -> None:
    """Refuse two reports with one path, and each path that `check_report_path` refuses. `reports`: flag -> file."""
    taken: dict[Path, str] = {}
    for flag, entry in reports.items():
        if entry is None:
            continue
        aim = resolve_parent(entry)
        if aim in taken:
            raise BadValue(f"{taken[aim]} and {flag} both name {entry}.", "Give each report a file of its own.")
        taken[aim] = flag
        check_report_path(path, flag, entry, out, force)


def check_report_path(path: Path, flag: str, report: Path, out: Path | None, force: bool) -> None:
    """Refuse a path for a report: a folder, a link, a script of the project, or a file that is no earlier report.

    `force` allows the last.
    """
    if os.path.isdir(report) or (out is not None and resolve_parent(report) == out.resolve()):
        raise BadValue(f"{flag} {report} is a folder.", "Name the file to write.")
    if not os.path.isdir(report.parent) and not (out is not None and resolve_parent(report).parent == out.resolve()):
        raise BadValue(f"{flag} {report}: there is no folder {report.parent}.", "Make it first, or name another.")
    there = find_occupant(path, report, out)
    if there is None:
        return
    if os.path.islink(report) or not os.path.isfile(there):
        raise BadValue(f"{flag} {report} exists and is not a plain file.", "Name a new file.")
    if is_in_project(path, there) and is_script(there):
        raise BadValue(f"{flag} {report} is a script of the project.", "Name another file.")
    if not force and not is_earlier(flag, there):
        raise BadValue(
            f"{flag} {report} exists and is not an earlier report of this kind.",
            "Name another file; --force replaces it.",
        )


def resolve_parent(report: Path) -> Path:
    """Return the path with links in its folder resolved; a link at the path itself is not followed."""
    return report.parent.resolve() / report.name


def find_occupant(path: Path, report: Path, out: Path | None) -> Path | None:
    """Return the file that would be overwritten: one at the path, or the one of the project that --out copies there."""
    if os.path.lexists(report):
        return report
    if out is None or resolve_parent(report).parent != out.resolve():
        return None
    copied = path / report.name if path.is_dir() else path
    return copied if copied.name == report.name and os.path.lexists(copied) else None


def is_in_project(path: Path, file: Path) -> bool:
    project, aim = path.resolve(), file.resolve()
    return aim == project or project in aim.parents


# ---- recognition of earlier reports


def is_earlier(flag: str, file: Path) -> bool:
    """Return True if a file is an earlier report of the flag's kind."""
    try:
        return RECOGNIZERS[flag](file)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def is_page(file: Path) -> bool:
    with open(file, "rb") as stream:
        head = stream.read(HEAD_BYTES)
    return GENERATOR_TAG.search(head) is not None


def is_sarif(file: Path) -> bool:
    return bool(json.loads(file.read_bytes())["runs"][0]["tool"]["driver"]["name"] == "viaduct migrate")


def is_record(file: Path) -> bool:
    report = json.loads(file.read_bytes())
    return bool(report["tool"]["name"] == "viaduct" and "findings" in report)


RECOGNIZERS: dict[str, Callable[[Path], bool]] = {"--report": is_page, "--sarif": is_sarif, "--json": is_record}
