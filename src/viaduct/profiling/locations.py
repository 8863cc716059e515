"""Lines of the user's script that called an operator, from the Python functions in a trace.

A trace names a Python function by file and *first* line. The line at which a function was called is only in
torch.profiler's tree of events, from which `read_call_lines` takes it if this torch has the tree. Without it, and
for operators such as `x * 2` that Python calls without a function call, a location is "train.py in forward()".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from viaduct.profiling.events import PYTHON, Event

CallLines = dict[tuple[int, int], tuple[str, int]]
"""(start and duration of a Python function in nanoseconds) -> file and line from which it was called."""

FUNCTION = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
INSTALLED = ("site-packages", "dist-packages")


class ScriptFiles:
    """Files under the user's folder, by the name that a trace gives them.

    torch.profiler cuts the longest folder of `sys.path` off the name of a file.
    """

    def __init__(self, folder: Path | None, search: Iterable[str] | None = None) -> None:
        self.folder = folder.resolve() if folder is not None else None
        self.roots = [Path(root or ".").resolve() for root in (sys.path if search is None else search)]
        self.known: dict[str, str] = {}

    def find_name(self, file: str) -> str:
        """Return the file's name relative to the user's folder; "" for files elsewhere and installed packages."""
        if file not in self.known:
            self.known[file] = self.resolve_name(file)
        return self.known[file]

    def resolve_name(self, file: str) -> str:
        """Look a file up under the user's folder and in the folders of `sys.path`."""
        folder = self.folder
        if folder is None or file.startswith("<"):
            return ""
        path = next((root / file for root in (folder, *self.roots) if (root / file).is_file()), None)
        if path is None or not path.resolve().is_relative_to(folder):
            return ""
        relative = path.resolve().relative_to(folder)
        return "" if any(name in INSTALLED for name in relative.parts) else str(relative)


def locate_calls(events: Iterable[Event], files: ScriptFiles, lines: CallLines, base_ns: int = 0) -> dict[int, str]:
    """Return for each Python function, by id(event), the innermost line of the script that is running within it.

    A function of a library has the script's line that called it; a function of the script is "FILE in FUNCTION()".
    `base_ns` is the zero of the events' clock, as in `lines`.
    """
    locations: dict[int, str] = {}
    for event in events:
        if event.category != PYTHON:
            continue
        around = event.find_around(PYTHON)
        location = locations.get(id(around), "") if around is not None else ""
        call = lines.get((base_ns + round(event.start * 1000), round(event.duration * 1000)))
        if call is not None and files.find_name(call[0]):
            location = f"{files.find_name(call[0])}:{call[1]}"
        function = FUNCTION.match(event.name)
        if function and (name := files.find_name(function["file"])):
            location = f"{name} in {function['function']}()"
        locations[id(event)] = location
    return locations


def read_call_lines(profiler: Any, starts: set[int]) -> CallLines:
    """Return the lines at which Python functions that started at these nanoseconds were called.

    They come from the profiler's tree of events; {} if this torch has no such tree.
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
    """Return when the Python functions of a trace started, in nanoseconds."""
    return {base_ns + round(event["ts"] * 1000) for event in raw if event.get("cat") == PYTHON}
