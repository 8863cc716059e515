"""Check the paths given by --report, --json and --sarif before the migration.

Without --force a report may replace only an earlier report of the same kind.
"""

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
    """Raise BadValue for two reports with one path and for a path that is not allowed. `reports`: flag -> file."""
    flag_by_path: dict[Path, str] = {}
    for flag, entry in reports.items():
        if entry is None:
            continue
        resolved = resolve_parent(entry)
        if resolved in flag_by_path:
            raise BadValue(
                f"{flag_by_path[resolved]} and {flag} both name {entry}.", "Give each report a file of its own."
            )
        flag_by_path[resolved] = flag
        check_report_path(path, flag, entry, out, force)


def check_report_path(path: Path, flag: str, report: Path, out: Path | None, force: bool) -> None:
    """Raise BadValue for a folder, a path in no folder, a link, a script, or without `force` a file of another kind."""
    if os.path.isdir(report) or (out is not None and resolve_parent(report) == out.resolve()):
        raise BadValue(f"{flag} {report} is a folder.", "Name the file to write.")
    if not os.path.isdir(report.parent) and not (out is not None and resolve_parent(report).parent == out.resolve()):
        raise BadValue(f"{flag} {report}: there is no folder {report.parent}.", "Make it first, or name another.")
    occupant = find_occupant(path, report, out)
    if occupant is None:
        return
    if os.path.islink(report) or not os.path.isfile(occupant):
        raise BadValue(f"{flag} {report} exists and is not a plain file.", "Name a new file.")
    if is_in_project(path, occupant) and is_script(occupant):
        raise BadValue(f"{flag} {report} is a script of the project.", "Name another file.")
    if not force and not is_earlier(flag, occupant):
        raise BadValue(
            f"{flag} {report} exists and is not an earlier report of this kind.",
            "Name another file; --force replaces it.",
        )


def resolve_parent(report: Path) -> Path:
    """Return the path with links in its folder resolved; the last part is not followed."""
    return report.parent.resolve() / report.name


def find_occupant(path: Path, report: Path, out: Path | None) -> Path | None:
    """Return the file that the report would overwrite: at its path, or a project's file that --out copies there."""
    if os.path.lexists(report):
        return report
    if out is None or resolve_parent(report).parent != out.resolve():
        return None
    copied = path / report.name if path.is_dir() else path
    return copied if copied.name == report.name and os.path.lexists(copied) else None


def is_in_project(path: Path, file: Path) -> bool:
    project, resolved = path.resolve(), file.resolve()
    return resolved == project or project in resolved.parents


def is_earlier(flag: str, file: Path) -> bool:
    """Return True if a file is an earlier report of the flag's kind."""
    try:
        return RECOGNIZERS[flag](file)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def is_html_report(file: Path) -> bool:
    with open(file, "rb") as stream:
        head = stream.read(HEAD_BYTES)
    return GENERATOR_TAG.search(head) is not None


def is_sarif_report(file: Path) -> bool:
    return bool(json.loads(file.read_bytes())["runs"][0]["tool"]["driver"]["name"] == "viaduct migrate")


def is_json_report(file: Path) -> bool:
    report = json.loads(file.read_bytes())
    return bool(report["tool"]["name"] == "viaduct" and "findings" in report)


RECOGNIZERS: dict[str, Callable[[Path], bool]] = {
    "--report": is_html_report,
    "--sarif": is_sarif_report,
    "--json": is_json_report,
}
