"""Tell strings for people, such as a docstring or a log message, from strings that the program uses."""

from __future__ import annotations

import ast

from viaduct.migration.lookups import last_name
from viaduct.migration.source import Source

LOG_FUNCTIONS = {"print", "info", "debug", "warning", "warn", "error", "exception", "critical", "log"}
TEXT_ARGUMENTS = ("help", "description", "usage", "epilog", "message", "reason", "title", "label")


def is_prose(source: Source, node: ast.expr) -> bool:
    """Return True for a docstring and for a message, also for a part of an f-string that is one."""
    parent = source.parents.get(node)
    text = parent if isinstance(parent, ast.JoinedStr) else node
    return isinstance(source.parents.get(text), ast.Expr) or is_message(source, text)


def is_message(source: Source, node: ast.AST) -> bool:
    """Return True for a help text, an error message, also of an `assert`, or a log message."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Assert):
        return parent.msg is node
    if isinstance(parent, ast.keyword):
        return parent.arg in TEXT_ARGUMENTS
    name = last_name(parent.func) if isinstance(parent, ast.Call) else ""
    return name in LOG_FUNCTIONS or name.endswith(("Error", "Warning"))
