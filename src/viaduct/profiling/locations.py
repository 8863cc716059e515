"""Lines of the user's script that called operators, from the Python functions in a trace.

A trace has the file and the *first* line of a Python function. The line of a call is only in torch.profiler's tree of
events, which `read_call_lines` reads if this torch has the tree. Without it, and for operators such as `x * 2`, which
are no function calls in Python, a location is "train.py in forward()".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from viaduct.profiling.events import PYTHON, Event

CallLines = dict[tuple[int, int], tuple[str, int]]
"""Start and duration of a call of a Python function, in nanoseconds -> file and line of the call."""

FUNCTION = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
INSTALLED = ("site-packages", "dist-packages")


class ScriptFiles:
    """Finds files under the user's folder by their names in a trace, which are relative to a folder of sys.path."""

    def __init__(self, folder: Path | None, search_path: Iterable[str] | None = None) -> None:
        self.folder = folder.resolve() if folder is not None else None
        self.roots = [Path(root or ".").resolve() for root in (sys.path if search_path is None else search_path)]
        self.find_name = cache(self.resolve_name)  # few files occur, each many times

    def resolve_name(self, file: str) -> str:
        """Return the file's name relative to the user's folder; "" for files elsewhere and installed packages."""
        folder = self.folder
        if folder is None or file.startswith("<"):
            return ""
        path = next((root / file for root in (folder, *self.roots) if (root / file).is_file()), None)
        if path is None or not path.resolve().is_relative_to(folder):
            return ""
        relative = path.resolve().relative_to(folder)
        return "" if any(name in INSTALLED for name in relative.parts) else str(relative)


def locate_calls(events: Iterable[Event], files: ScriptFiles, lines: CallLines, base_ns: int = 0) -> dict[int, str]:
    """Return the innermost line of the script for each event of a Python function, by id(event).

    A function of a library gets the line of the script that called it, or "FILE in FUNCTION()" if the line is unknown.
    A function of the script gets "FILE in FUNCTION()". `base_ns` is the zero of the events' clock in nanoseconds.
    """
    locations: dict[int, str] = {}
    for event in events:
        if event.category != PYTHON:
            continue
        caller = event.find_enclosing(PYTHON)
        location = locations.get(id(caller), "") if caller is not None else ""
        call = lines.get((base_ns + round(event.start * 1000), round(event.duration * 1000)))
        if call is not None and files.find_name(call[0]):
            location = f"{files.find_name(call[0])}:{call[1]}"
        function = FUNCTION.match(event.name)
        if function and (name := files.find_name(function["file"])):
            location = f"{name} in {function['function']}()"
        locations[id(event)] = location
    return locations


def read_call_lines(profiler: Any, starts: set[int]) -> CallLines:
    """Return the call lines of Python functions with these start times, from the profiler's tree of events.

    {} if this torch has no such tree.
    """
    try:
        pending = list(profiler.profiler.kineto_results.experimental_event_tree())
    except (AttributeError, RuntimeError, TypeError):
        return {}
    call_lines: CallLines = {}
    while pending:
        node = pending.pop()
        pending += node.children
        start = node.start_time_ns
        caller = getattr(node.extra_fields, "caller", None) if start in starts else None
        if caller is not None:
            call_lines[start, node.duration_time_ns] = (str(caller.file_name), int(caller.line_number))
    return call_lines


def list_starts(raw: Iterable[dict[str, Any]], base_ns: int) -> set[int]:
    """Return the start times of the Python functions in a trace, in nanoseconds."""
    return {base_ns + round(event["ts"] * 1000) for event in raw if event.get("cat") == PYTHON}
