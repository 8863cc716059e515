"""Environment variables in Python code: os.environ, os.getenv, a copy for a child process."""

from __future__ import annotations

import ast

from viaduct.migration.lookups import last_name, plain_name
from viaduct.migration.rule import Site

ENVIRONMENT_FUNCTIONS = (
    *(f"os.{name}" for name in ("getenv", "putenv", "unsetenv")),
    *(f"os.environ.{name}" for name in ("get", "setdefault", "pop", "__setitem__")),
)
ENVIRONMENT_METHODS = ("get", "setdefault", "pop", "setenv", "delenv")  # methods of a dict and of pytest's monkeypatch
ENVIRONMENT_NAMES = ("env", "environ", "environment", "env_vars", "child_env", "monkeypatch")


def is_variable_name(site: Site, node: ast.Constant) -> bool:
    """Return True for a string that is used as the name of an environment variable."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.Subscript) and parent.slice is node:
        return is_environment(site, parent.value)
    if isinstance(parent, ast.Compare) and parent.left is node:
        return is_environment(site, parent.comparators[0])
    if isinstance(parent, ast.Dict) and node in parent.keys:
        return is_environment_dict(site, parent)
    if not isinstance(parent, ast.Call) or parent.args[:1] != [node]:
        return False
    if site.qualified_name(parent.func) in ENVIRONMENT_FUNCTIONS:
        return True
    method = parent.func if isinstance(parent.func, ast.Attribute) else None
    return method is not None and method.attr in ENVIRONMENT_METHODS and is_environment(site, method.value)


def is_environment(site: Site, node: ast.AST) -> bool:
    """Return True for os.environ, a copy of it, or a usual name of an environment: `env`, `monkeypatch`."""
    if site.qualified_name(node) == "os.environ":
        return True
    origin = site.values.assigned_value(node)
    if isinstance(origin, ast.Call):
        is_copy = site.qualified_name(origin.func) == "os.environ.copy"
        return is_copy or any(site.qualified_name(argument) == "os.environ" for argument in origin.args)
    if isinstance(origin, ast.Dict):
        return is_environment_dict(site, origin)
    return last_name(node).lower() in ENVIRONMENT_NAMES


def is_environment_dict(site: Site, table: ast.Dict) -> bool:
    """Return True for a dict of environment variables.

    `{**os.environ, "X": "1"}`, `env={"X": "1"}`, `os.environ.update({"X": "1"})`, `env = {"X": "1"}`,
    `os.environ |= {"X": "1"}`, `os.environ | {"X": "1"}`.
    """
    items = zip(table.keys, table.values, strict=True)
    if any(key is None and site.qualified_name(value) == "os.environ" for key, value in items):
        return True
    parent = site.source.parents[table]
    if isinstance(parent, ast.keyword):
        return parent.arg == "env"
    if isinstance(parent, ast.Call):
        return is_update(site, parent)
    if isinstance(parent, ast.AugAssign | ast.BinOp) and isinstance(parent.op, ast.BitOr):
        other = parent.target if isinstance(parent, ast.AugAssign) else parent.left
        return other is not table and is_environment(site, other)
    return isinstance(parent, ast.Assign) and "env" in plain_name(parent.targets[0]).lower().split("_")


def is_update(site: Site, call: ast.Call) -> bool:
    """Return True for a call of `os.environ.update`, or of `update` of a copy of the environment."""
    method = call.func if isinstance(call.func, ast.Attribute) else None
    return method is not None and method.attr == "update" and is_environment(site, method.value)


def get_assigned_value(site: Site, node: ast.Constant) -> ast.expr | None:
    """Return the value that is assigned to the variable whose name is the string `node`; None if it is only read."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.Dict):
        return parent.values[parent.keys.index(node)]
    if isinstance(parent, ast.Subscript):
        statement = site.source.parents[parent]
        return statement.value if isinstance(statement, ast.Assign) and parent in statement.targets else None
    setters = ("putenv", "setdefault", "setenv", "__setitem__")
    is_setter = isinstance(parent, ast.Call) and last_name(parent.func) in setters
    return parent.args[1] if is_setter and len(parent.args) > 1 else None  # type: ignore[attr-defined]
