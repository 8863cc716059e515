"""Environment variables in Python code: os.environ, os.getenv, a copy for a child process."""

from __future__ import annotations

import ast

from viaduct.migration.rule import Site

ACCESS = {
    *("os.getenv", "os.putenv", "os.unsetenv"),
    *(f"os.environ.{name}" for name in ("get", "setdefault", "pop", "__setitem__")),
}
METHODS = ("get", "setdefault", "pop", "setenv", "delenv")


def is_variable(site: Site, node: ast.Constant) -> bool:
    """Return True if a string is the name of a variable where it stands."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.Subscript) and parent.slice is node:
        return is_environment(site, parent.value)
    if isinstance(parent, ast.Compare) and parent.left is node:
        return is_environment(site, parent.comparators[0])
    if isinstance(parent, ast.Dict) and node in parent.keys:
        return is_environment_table(site, parent)
    if not isinstance(parent, ast.Call) or not parent.args or parent.args[0] is not node:
        return False
    if site.qualified(parent.func) in ACCESS:
        return True
    called = parent.func
    return isinstance(called, ast.Attribute) and called.attr in METHODS and is_environment(site, called.value)


def is_environment(site: Site, node: ast.AST) -> bool:
    """Return True for os.environ, a copy of it, or a name that is usual for an environment: `env`, `monkeypatch`."""
    if site.qualified(node) == "os.environ":
        return True
    made = site.values.origin(node)
    if isinstance(made, ast.Call):
        copied = site.qualified(made.func) == "os.environ.copy"
        return copied or any(site.qualified(argument) == "os.environ" for argument in made.args)
    if isinstance(made, ast.Dict):
        return is_environment_table(site, made)
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name.lower() in ("env", "environ", "environment", "env_vars", "child_env", "monkeypatch")


def is_environment_table(site: Site, table: ast.Dict) -> bool:
    """Return True for a dict of variables.

    `{**os.environ, "X": "1"}`, `env={"X": "1"}`, `os.environ.update({"X": "1"})`, `env = {"X": "1"}`.
    """
    if any(
        key is None and site.qualified(value) == "os.environ"
        for key, value in zip(table.keys, table.values, strict=True)
    ):
        return True
    parent = site.source.parents[table]
    if isinstance(parent, ast.keyword):
        return parent.arg == "env"
    if isinstance(parent, ast.Call):
        return site.qualified(parent.func) == "os.environ.update"
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        return "env" in parent.targets[0].id.lower().split("_")
    return False


def value_of(site: Site, node: ast.Constant) -> ast.expr | None:
    """Return the value that the variable is set to at this place; None where it is only read."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.Dict):
        return parent.values[parent.keys.index(node)]
    if isinstance(parent, ast.Subscript):
        holder = site.source.parents[parent]
        return holder.value if isinstance(holder, ast.Assign) and parent in holder.targets else None
    if isinstance(parent, ast.Call) and len(parent.args) > 1:
        name = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        return parent.args[1] if name in ("putenv", "setdefault", "setenv", "__setitem__") else None
    return None
