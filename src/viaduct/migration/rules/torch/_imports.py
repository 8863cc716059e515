"""Edit import statements: import names from another module, under the same local names, or remove them."""

from __future__ import annotations

import ast
from collections.abc import Callable

from viaduct.cards import CARDS
from viaduct.migration.rule import Site

RUN_TIME_PATCHES = tuple(patch for card in CARDS.values() for patch in card.patch_modules)
"""Modules whose import redirects CUDA to the vendor's card."""


def move_names(site: Site, new_name: Callable[[str], str | None]) -> None:
    """Import names of the site's `from x import a, b` from other modules, and report each.

    `new_name` returns the new qualified name for an old one, or None for a name that stays.
    """
    statement: ast.ImportFrom = site.node
    moved: list[tuple[ast.alias, str]] = []
    kept: list[ast.alias] = []
    for alias in statement.names:
        new = new_name(f"{statement.module}.{alias.name}")
        if new:
            moved.append((alias, new))
        else:
            kept.append(alias)
    if not moved:
        return
    lines = render_imports(moved)
    if len(lines) == 1 and not kept:
        change_module(site, statement, moved)
    else:
        if kept:
            lines.append(f"from {statement.module} import {', '.join(map(ast.unparse, kept))}")
        replace_statement(site, statement, lines)
    for alias, new in moved:
        old = f"{statement.module}.{alias.name}"
        site.report_change(f"{old} is imported as {new}", zh=f"{old} 改为从 {new} 导入")


def render_imports(moved: list[tuple[ast.alias, str]]) -> list[str]:
    """Return `from module import name as local` for names and their new qualified names, one line for each module."""
    by_module: dict[str, list[str]] = {}
    for alias, new in moved:
        by_module.setdefault(new.rpartition(".")[0], []).append(render_alias(alias, new))
    return [f"from {module} import {', '.join(names)}" for module, names in by_module.items()]


def render_alias(alias: ast.alias, new: str) -> str:
    """Return `name as local` for the new qualified name of an import, or `name` if both are the same."""
    name, local = new.rpartition(".")[2], alias.asname or alias.name
    return name if name == local else f"{name} as {local}"


def change_module(site: Site, statement: ast.ImportFrom, moved: list[tuple[ast.alias, str]]) -> None:
    """Change the module of an import statement in place, and the names that differ in the new module."""
    tokens = site.source.tokens_from(site.source.span(statement)[0])
    start = next(token for token in tokens if token.text == "from").end
    end = next(token for token in tokens if token.text == "import").start
    site.edit.replace(start, end, f" {moved[0][1].rpartition('.')[0]} ")
    for alias, new in moved:
        if new.rpartition(".")[2] != alias.name:
            site.edit.replace_node(alias, render_alias(alias, new))


def replace_statement(site: Site, statement: ast.stmt, lines: list[str]) -> None:
    """Replace a statement by several, on separate lines if it begins its line; remove it if there are no lines."""
    if not lines:
        site.edit.remove_statement(statement)
        return
    start = site.source.span(statement)[0]
    indent = site.source.text[site.source.line_start(start) : start]
    separator = f"{site.source.newline}{indent}" if not indent.strip() else "; "
    site.edit.replace_node(statement, separator.join(lines))


def drop_alias(site: Site, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
    """Remove one of several names that a statement imports, and one comma."""
    position = statement.names.index(alias)
    start, end = site.source.span(alias)
    if position + 1 < len(statement.names):
        site.edit.delete(start, site.source.span(statement.names[position + 1])[0])
    else:
        site.edit.delete(site.source.span(statement.names[position - 1])[1], end)
