"""Render the helper of `--to any`, a module by which scripts query the machine's accelerator.

The complete helper is `accelerator_device.py` in this folder, which has its own tests and is never imported. A project
gets a copy without the parts that its scripts do not need: methods, attributes, imports, and entries of ON_THE_CPU, the
table of what the members return on the CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from viaduct.migration.graphs import find_reachable
from viaduct.migration.predicates import is_self
from viaduct.migration.project import HELPER_MODULE
from viaduct.migration.source import first_line

COMPLETE_HELPER = Path(__file__).with_name(f"{HELPER_MODULE}.py")
HELPER_CLASS, CPU_RESULTS = "AnyAccelerator", "ON_THE_CPU"
COMMON_PARTS = (".name", ".is_available", ".__getattr__")  # parts that every helper has
MAX_LINE_CHARACTERS = 100
"""The table ON_THE_CPU is written on one line if that is not longer."""


@dataclass(frozen=True)
class Part:
    """A part of the helper that may be left out."""

    first: int  # lines, from 1
    last: int
    needs: frozenset[str]  # names of the parts that it needs, as in `iterate_parts`


def read_helper() -> str:
    return COMPLETE_HELPER.read_text(encoding="utf-8")


def render_helper(uses: Iterable[str]) -> str:
    """Return the helper with these members and the parts that they need."""
    parts_by_name, lines = read_parts(), read_helper().splitlines(keepends=True)
    needs = {name: part.needs for name, part in parts_by_name.items()}
    used = set[str]().union(*(find_reachable(name, needs) for name in (*COMMON_PARTS, *(f".{use}" for use in uses))))
    omitted_parts = [part for name, part in parts_by_name.items() if name not in used]
    omitted = {line for part in omitted_parts for line in range(part.first, part.last + 1)}
    return join_cpu_results("".join(line for number, line in enumerate(lines, 1) if number not in omitted))


def join_cpu_results(text: str) -> str:
    """Return the helper with its table ON_THE_CPU on one line if it fits."""
    start = text.index(f"{CPU_RESULTS} = {{")
    stop = text.index("}\n", start) + len("}\n")
    head, *entries, _ = text[start:stop].splitlines()
    joined = head + " ".join(entry.strip() for entry in entries).rstrip(",") + "}\n"
    return text[:start] + joined + text[stop:] if len(joined) <= MAX_LINE_CHARACTERS else text


@lru_cache(maxsize=1)
def read_parts() -> dict[str, Part]:
    """Return the parts of the complete helper by name."""
    text = read_helper()
    return dict(iterate_parts(ast.parse(text), text))


def iterate_parts(tree: ast.Module, text: str) -> Iterator[tuple[str, Part]]:
    """Yield (name, part): `.x` for accelerator.x (a member or a CPU result), else a module-level name."""
    lines = text.splitlines()
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            yield statement.names[0].name, Part(statement.lineno, statement.lineno, frozenset())
        elif isinstance(statement, ast.ClassDef) and statement.name == HELPER_CLASS:
            yield from iterate_members(statement, lines)
        elif isinstance(statement, ast.ClassDef):
            yield statement.name, make_part(statement, lines)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for key in statement.value.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield f".{key.value}", make_part(key, lines)


def iterate_members(definition: ast.ClassDef, lines: list[str]) -> Iterator[tuple[str, Part]]:
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef):
            yield f".{statement.name}", make_part(statement, lines)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield f".{statement.targets[0].id}", make_part(statement, lines)


def make_part(node: ast.stmt | ast.expr, lines: list[str]) -> Part:
    """Return the part of a definition with its decorators and the blank lines above it."""
    first = first_line(node)
    while not lines[first - 2].strip():
        first -= 1
    return Part(first, node.end_lineno or node.lineno, frozenset(find_needs(node)))


def find_needs(node: ast.AST) -> Iterator[str]:
    """Yield the names that a part uses, as in `iterate_parts`."""
    for descendant in ast.walk(node):
        if isinstance(descendant, ast.Name):
            yield descendant.id
        elif isinstance(descendant, ast.Attribute) and is_self(descendant.value):
            yield f".{descendant.attr}"


def find_definitions(text: str) -> set[str]:
    """Return the names that a helper defines and all its strings, among them the keys of ON_THE_CPU.

    The set is empty if the text cannot be parsed.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def is_as_written(text: str) -> bool:
    """Return True if the text of a helper is as viaduct wrote it."""
    return render_helper(find_definitions(text)) == text


def find_missing(text: str, uses: Iterable[str]) -> list[str]:
    """Return the used members of the complete helper that this one lacks; [] if it cannot be parsed."""
    defined = find_definitions(text)
    return sorted(use for use in uses if f".{use}" in read_parts() and use not in defined) if defined else []


def find_uses(tree: ast.AST, local: str) -> dict[str, int]:
    """Return member of the helper -> line of its first use in a script, where the helper is called `local`.

    If the script passes the helper on as a value, all members count as used.
    """
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_read(node.value, local)]
    roots = {node.value for node in attributes}
    first_lines = {node.attr: node.lineno for node in sorted(attributes, key=lambda node: -node.lineno)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and is_read(node, local) and node not in roots:
            members = (name[1:] for name in read_parts() if name.startswith("."))
            return {**dict.fromkeys(members, node.lineno), **first_lines}
    return first_lines


def is_read(node: ast.AST, local: str) -> bool:
    return isinstance(node, ast.Name) and node.id == local and isinstance(node.ctx, ast.Load)
