"""Training steps whose end the user names: `--step-at train.py:41`, or `--step-at update` for a function.

A step ends when the statement in that line has been executed, or when the function returns without raising. A trace
function observes this; it makes the script slower, since Python calls it at every function call.
"""

from __future__ import annotations

import ast
import atexit
import difflib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from viaduct.errors import BadValue
from viaduct.rehearsal import limits
from viaduct.scripts.notebook_runs import parse_source, read_source

STEP_AT_FLAG = "--step-at"
MAX_LISTED = 6  # files in a message
LINE_ADVICE = "Name a line after which a step is complete."
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# Statements at whose lines a step cannot end: definitions, and declarations, which are not executed.
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)


@dataclass(frozen=True)
class StepEnd:
    """A statement in the lines `first` to `last` of a file, or a function if `file` is empty."""

    file: str = ""
    first: int = 0
    last: int = 0
    function: str = ""

    def __str__(self) -> str:
        return self.function or f"{self.file}:{self.first}-{self.last}"


def parse_step_end(text: str) -> StepEnd:
    """Parse the text that `StepEnd.__str__` returns."""
    file, colon, lines = text.rpartition(":")
    if not colon:
        return StepEnd(function=text)
    first, _, last = lines.partition("-")
    return StepEnd(file, int(first), int(last))


def find_step_end(text: str, files: Mapping[str, Path]) -> StepEnd:
    """Find the statement or function that a user names; `files` are the project's, by relative path.

    Raise BadValue if there is none, or if several files match.
    """
    name, colon, line = text.rpartition(":")
    if colon and not line.isdecimal():
        raise BadValue(
            f"{STEP_AT_FLAG} {text}: {line!r} is no line number.", "Write FILE:LINE, or the name of a function."
        )
    if colon:
        return find_statement(text, name, int(line), files)
    functions = {node.name for path in files.values() for node in iterate_nodes(path) if isinstance(node, FunctionNode)}
    name = text.rpartition(".")[2]
    if name not in functions:
        close = difflib.get_close_matches(name, functions, 3)
        advice = f"Closest: {', '.join(close)}." if close else "Write FILE:LINE, or the name of a function."
        raise BadValue(
            f"{STEP_AT_FLAG} {text}: the project's files that were read have no function of that name.", advice
        )
    return StepEnd(function=text)


def find_statement(text: str, name: str, line: int, files: Mapping[str, Path]) -> StepEnd:
    """Return the statement at FILE:LINE; raise BadValue if there is none."""
    relative, resolved = os.path.normpath(name), Path(name).resolve()
    matches = [path for path in files if path == relative or path.endswith(f"/{relative}") or files[path] == resolved]
    matches = [relative] if relative in matches else matches
    if len(matches) != 1:
        subject = f"{len(matches)} files of the project are" if matches else "no file of the project is"
        names = sorted(matches or files)
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        hint = [f"There are: {', '.join(names[:MAX_LISTED])}{more}."] if names else []
        raise BadValue(f"{STEP_AT_FLAG} {text}: {subject} called {name}.", *hint)
    (match,) = matches
    path = files[match]
    count = len(read_source(path, path.read_bytes()).decode("utf-8", errors="replace").splitlines())
    if not 1 <= line <= count:
        raise BadValue(f"{STEP_AT_FLAG} {text}: {match} has {count} lines.", LINE_ADVICE)
    statements = (node for node in iterate_nodes(path) if isinstance(node, ast.stmt))
    spans = [find_span(statement) for statement in statements if not isinstance(statement, DEFINITIONS)]
    enclosing = [(first, last) for first, last in spans if first <= line <= last]
    if not enclosing:
        following = min((first for first, _ in spans if first > line), default=None)
        advice = f"The next statement is in line {following}." if following else LINE_ADVICE
        raise BadValue(f"{STEP_AT_FLAG} {text}: no statement is executed in this line.", advice)
    first, last = min(enclosing, key=lambda span: span[1] - span[0])
    return StepEnd(match, first, last)


def find_span(node: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement; for a compound statement, of its lines before the body."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.lineno, node.end_lineno or node.lineno
    first = getattr(body[0], "lineno", None) or body[0].pattern.lineno
    return node.lineno, max(node.lineno, first - 1)


def iterate_nodes(path: Path) -> Iterator[ast.AST]:
    """Yield the AST nodes of a file; none if it cannot be parsed."""
    try:
        yield from ast.walk(parse_source(path))
    except (OSError, SyntaxError, ValueError):
        return


class StepEndTracer:
    """Calls `on_step` after each execution of the statement or function in this process."""

    def __init__(self, step_end: StepEnd, on_step: Callable[[], None]) -> None:
        self.step_end, self.on_step = step_end, on_step
        self.has_step_end = lru_cache(maxsize=None)(self._has_step_end)

    def start(self) -> None:
        """Trace new calls, and the running functions and modules."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if self.has_step_end(frame.f_code):
                frame.f_trace = self.make_local_trace()
            frame = frame.f_back
        atexit.register(sys.settrace, None)  # later the trace function would lack its module's globals
        sys.settrace(self._trace_call)
        threading.settrace(self._trace_call)

    def close(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _has_step_end(self, code: CodeType) -> bool:
        """Return True if a code object is the function that ends a step, or has a line of the statement that does."""
        if not limits.is_users_file(code.co_filename):
            return False
        if function := self.step_end.function:
            # Before Python 3.11 code has no qualified name.
            name = getattr(code, "co_qualname", code.co_name)
            return name == function or name.endswith(f".{function}") or code.co_name == function
        is_in_file = os.path.abspath(code.co_filename).endswith(f"{os.sep}{self.step_end.file}")
        lines = {line for _, _, line in code.co_lines() if line}
        return is_in_file and any(self.step_end.first <= line <= self.step_end.last for line in lines)

    def _trace_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.make_local_trace() if self.has_step_end(frame.f_code) else None

    def make_local_trace(self) -> Callable[[FrameType, str, Any], Any]:
        """Return a trace function for one frame."""
        is_inside = False  # the frame's last event was a line of the statement that ends a step
        is_raising = False  # the frame's last event was an exception

        def trace_lines(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal is_inside
            was_inside = is_inside
            is_inside = event == "line" and self.step_end.first <= frame.f_lineno <= self.step_end.last
            if was_inside and not is_inside and event in ("line", "return"):
                self.on_step()
            return trace_lines

        def trace_return(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal is_raising
            if event == "exception":
                is_raising = True
            elif event == "line":
                is_raising = False  # the function has caught it
            elif event == "return" and not is_raising:
                self.on_step()
            return trace_return

        return trace_return if self.step_end.function else trace_lines
