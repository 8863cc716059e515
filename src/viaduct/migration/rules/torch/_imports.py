"""Import statements whose names move to another module: each keeps its local name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from viaduct.cards import CARDS
from viaduct.migration.rule import Site

PATCHES = tuple(patch for card in CARDS.values() for patch in card.patches)
"""The vendors' run-time patches: importing one of them makes a CUDA script run on the card."""

Home = Callable[[str], str | None]  # of a qualified name: the new one, or None


def move(site: Site, home: Home) -> list[tuple[str, str]]:
    """Rewrite the names of `from x import a, b` that have a new home; return the old and new names.

    Where only some of them move, they get a statement of their own before the one that keeps the others.
    """
    statement: ast.ImportFrom = site.node
    moved = {alias: home(f"{statement.module}.{alias.name}") for alias in statement.names}
    gone = [(alias, new) for alias, new in moved.items() if new]
    if not gone:
        return []
    lines = from_lines([(alias.asname or alias.name, new) for alias, new in gone])
    kept = [alias for alias, new in moved.items() if not new]
    if len(lines) == 1 and not kept:
        rewrite(site, statement, gone)
    else:
        lines.append(f"from {statement.module} import {', '.join(map(ast.unparse, kept))}" if kept else "")
        replace_statement(site, statement, [line for line in lines if line])
    return [(f"{statement.module}.{alias.name}", new) for alias, new in gone]


def from_lines(names: list[tuple[str, str]]) -> list[str]:
    """`from module import name as local`, one line for each module."""
    grouped: dict[str, list[str]] = {}
    for local, full in names:
        module, _, name = full.rpartition(".")
        grouped.setdefault(module, []).append(name if name == local else f"{name} as {local}")
    return [f"from {module} import {', '.join(held)}" for module, held in grouped.items()]


def rewrite(site: Site, statement: ast.ImportFrom, names: list[tuple[ast.alias, str]]) -> None:
    """Change the module of an import statement in place, and the names that differ in the new module."""
    module = names[0][1].rpartition(".")[0]
    start = site.source.span(statement)[0]
    words = site.source.tokens_from(start)
    position = next(token for token in words if token.text == "from").end
    stop = next(token for token in words if token.text == "import").start
    site.edit.replace(position, stop, f" {module} ")
    for alias, new in names:
        name, local = new.rpartition(".")[2], alias.asname or alias.name
        if name != alias.name:
            site.edit.node(alias, name if name == local else f"{name} as {local}")


def replace_statement(site: Site, statement: ast.stmt, lines: list[str]) -> None:
    """Replace one statement by several, on lines of their own where it begins its line."""
    start = site.source.span(statement)[0]
    indent = site.source.text[site.source.line_start(start) : start]
    separator = f"{site.source.newline}{indent}" if not indent.strip() else "; "
    site.edit.node(statement, separator.join(lines))


def drop_alias(site: Site, statement: ast.Import, alias: ast.alias) -> None:
    """Remove one name of `import a, b`, with its comma."""
    position = statement.names.index(alias)
    start, end = site.source.span(alias)
    if position + 1 < len(statement.names):
        site.edit.delete(start, site.source.span(statement.names[position + 1])[0])
    else:
        site.edit.delete(site.source.span(statement.names[position - 1])[1], end)


def imported_names(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the qualified names that an import statement imports."""
    head = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
    yield from (f"{head}{alias.name}" for alias in statement.names)
