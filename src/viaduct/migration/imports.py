"""The last pass: imports of the names that rules have introduced (rows I1, I2 and I3 of the specification).

Each name gets an explicit import, or comes from the star import of npu_init with `--imports star`. They are placed
behind the block of imports that holds the file's first top-level import of a framework; else behind the docstring, the
`from __future__` imports and the comments at the top. With `--to any` they may follow torch into functions and `try`
(lazy_imports.py), and a notebook gets the helper itself in a cell (helper_cell.py).
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viaduct.cards.tensorflow_api import BRIDGE, INIT, STAR_BINDS, STAR_NAMES, full_name
from viaduct.migration import helper_cell, lazy_imports
from viaduct.migration.findings import Finding

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

FRAMEWORKS = ("tensorflow", "torch", "keras", "horovod")
REGISTERS = full_name("npu_ops")  # imported only if nothing else of npu_bridge is


def insert_imports(work: Work) -> Work:
    """Insert the imports that rules have asked for."""
    if work.options.to == "any" and work.path.endswith(".ipynb"):
        work = helper_cell.extend(work)
    needed = {local: full for local, full in work.needed.items() if local in used_names(work)}
    needed |= {work.free_name(name): full for name, full in effects(work, needed)}
    if not needed:
        return work
    location = anchor(work.source.tree)
    lines = import_lines(needed, star=work.options.imports == "star" and not overwrites(work, location))
    lazy = location is None and work.options.to == "any" and not work.path.endswith(".ipynb")
    if lazy and lazy_imports.insert(work, next(iter(needed)), lines):
        return work.after()
    if work.path.endswith(".ipynb"):
        lines = helper_cell.in_place_of_import(work, lines, work.project.helper_of(work.path))
    if location is None:
        start = work.source.starts[header_end(work) - 1] if header_end(work) <= len(work.source.starts) else 0
        ending = work.source.newline
        work.edits.insert(start, "".join(line + ending for line in lines) + ending)
    elif last_on_its_line(work, location):
        stop = work.source.line_stop(work.source.span(location)[1])
        work.edits.insert(stop, "".join(work.source.newline + line for line in lines))
    else:
        work.edits.insert_after(location, lines)
    return work.after()


def effects(work: Work, needed: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (name, module) of the modules to import for their effect, without those that another import loads."""
    statements = (work.source.of_kind(kind) for kind in (ast.Import, ast.ImportFrom))
    present = {alias for found in statements for statement in found for alias in imported_modules(statement)}
    bridged = any(name.partition(".")[0] == BRIDGE for name in (*present, *needed.values()))
    for effect in sorted(work.effects - {name.partition(".")[0] for name in present}):
        if effect != REGISTERS or not bridged:
            yield effect.rpartition(".")[2], effect


def imported_modules(statement: ast.AST) -> Iterator[str]:
    """Yield the modules that a statement imports."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom) and not statement.level:
        yield statement.module or ""


def last_on_its_line(work: Work, statement: ast.stmt) -> bool:
    """Return True if no other statement follows on the line, as in `import os; import tensorflow as tf`."""
    following = next(work.source.tokens_from(work.source.span(statement)[1]), None)
    return following is None or following.start >= work.source.line_stop(work.source.span(statement)[1])


def overwrites(work: Work, anchor_statement: ast.stmt | None) -> bool:
    """Return True if a star import would rebind a name that the file binds before it, and report that."""
    top = work.names.scopes[work.source.tree]
    before = (
        work.source.tree.body[: work.source.tree.body.index(anchor_statement) + 1]
        if anchor_statement is not None
        else []
    )
    names = {name for statement in before for name in bound_by(statement)} & set(STAR_BINDS)
    lost = sorted(name for name in names if work.names.common_name(top.bound.get(name, [])) != STAR_BINDS[name])
    if lost:
        text = ", ".join(lost)
        message = f"no star import of npu_init here: it would overwrite {text}; names are imported one by one"
        zh = f"此处不使用 npu_init 的星号导入:会覆盖 {text};改为逐个导入"
        line = work.lines[(anchor_statement.lineno if anchor_statement is not None else 1) - 1]
        found = Finding(work.path, line, line, 1, "engine.imports", "advice", "advice", message, zh, "low")
        work.findings.append(found)
    return bool(lost)


def bound_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    else:
        stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
        yield from (node.id for node in stored if isinstance(node.ctx, ast.Store))


def used_names(work: Work) -> set[str]:
    """Return the names that the file mentions."""
    return {node.id for node in work.source.of_kind(ast.Name)}


def import_lines(needed: dict[str, str], star: bool) -> list[str]:
    """Return the import statements for the names that are needed."""
    lines: list[str] = []
    if star:
        starred = {local for local, full in needed.items() if STAR_NAMES.get(local) == full}
        needed = {local: full for local, full in needed.items() if local not in starred}
        lines += [f"from {INIT} import *"] if starred else []
    grouped: dict[str, list[str]] = defaultdict(list)
    for local, full in needed.items():
        module, _, name = full.rpartition(".")
        if not module:
            lines.append(f"import {name}" if local == name else f"import {name} as {local}")
        else:
            grouped[module].append(name if local == name else f"{name} as {local}")
    return lines + [f"from {module} import {name}" for module in sorted(grouped) for name in sorted(grouped[module])]


def anchor(tree: ast.Module) -> ast.stmt | None:
    """Return the last import of the block with the first top-level import of a framework; None if there is none."""
    body = tree.body
    for index, statement in enumerate(body):
        if imports_framework(statement):
            while index + 1 < len(body) and isinstance(body[index + 1], ast.Import | ast.ImportFrom):
                index += 1
            return body[index]
    return None


def imports_framework(statement: ast.stmt) -> bool:
    """Return True for a statement that imports TensorFlow, PyTorch, Keras or Horovod."""
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] in FRAMEWORKS for alias in statement.names)
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        return (statement.module or "").partition(".")[0] in FRAMEWORKS
    return False


def header_end(work: Work) -> int:
    """Return the line behind the docstring, `from __future__` and the comments at the top."""
    body = work.source.tree.body
    last = 0
    for index, statement in enumerate(body):
        docstring = index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (future or (docstring and isinstance(statement.value.value, str))):  # type: ignore[attr-defined]
            break
        last = statement.end_lineno or 0
    text = work.source.text
    while last < len(work.source.starts):
        start = work.source.starts[last]
        line = text[start : work.source.line_stop(start)].strip()
        if not line.startswith("#"):
            break
        last += 1
    return last + 1
