"""Insert imports of the names that rules have requested (rows I1, I2 and I3 of docs/rules.md).

Each name gets an explicit import; with `--imports star` it comes from the star import of npu_init. The imports follow
the block of imports with the file's first top-level import of a framework, else the docstring, `from __future__`
imports and comments at the top. With `--to any` they may follow an import of torch in a function or a `try`
(lazy_imports.py), and a notebook gets the helper itself in a cell (helper_cell.py).
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viaduct.cards.tensorflow_api import NPU_BRIDGE, NPU_INIT, STAR_BINDINGS, STAR_NAMES, full_name
from viaduct.migration import helper_cell, lazy_imports
from viaduct.migration.findings import Finding
from viaduct.migration.frameworks import FRAMEWORKS
from viaduct.migration.predicates import imported_modules, is_string
from viaduct.migration.source import FunctionNode, ImportNode

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

REGISTERING_MODULE = full_name("npu_ops")
"""Importing this module registers the NPU with TensorFlow; so does any other npu_bridge module."""


def insert_imports(work: Work) -> Work:
    """Insert the imports that rules have requested: `work.needed` and `work.effect_imports`."""
    is_notebook = work.path.endswith(".ipynb")
    if work.options.to == "any" and is_notebook:
        work = helper_cell.extend_cell(work)
    needed = {local: full for local, full in work.needed.items() if local in used_names(work)}
    needed |= {
        work.reserve_name(module.rpartition(".")[2]): module for module in find_missing_effect_imports(work, needed)
    }
    if not needed:
        return work
    location = lazy_imports.find_last_of_import_block(work.source.tree.body, FRAMEWORKS)
    overwritten = find_overwritten_names(work, location) if work.options.imports == "star" else []
    if overwritten:
        report_overwriting(work, location, overwritten)
    lines = render_imports(needed, star=work.options.imports == "star" and not overwritten)
    is_lazy = location is None and work.options.to == "any" and not is_notebook
    if is_lazy and lazy_imports.insert(work, next(iter(needed)), lines):  # with --to any only the helper is needed
        return work.apply_edits()
    if is_notebook:
        lines = helper_cell.replace_import_by_cell(work, lines, work.project.helper_of(work.path))
    newline = work.source.newline
    if location is None:
        start = work.source.starts[find_header_end(work) - 1] if find_header_end(work) <= len(work.source.starts) else 0
        work.edits.insert(start, "".join(line + newline for line in lines) + newline)
    elif is_last_on_line(work, location):
        stop = work.source.line_stop(work.source.span(location)[1])
        work.edits.insert(stop, "".join(newline + line for line in lines))
    else:
        work.edits.insert_after(location, lines)
    return work.apply_edits()


def find_missing_effect_imports(work: Work, needed: dict[str, str]) -> Iterator[str]:
    """Yield the modules to import for their effect, without those that the file imports already."""
    present = {name.partition(".")[0] for node in work.source.imports for name in imported_modules(node)}
    registered = NPU_BRIDGE in present or any(name.partition(".")[0] == NPU_BRIDGE for name in needed.values())
    yield from (
        module for module in sorted(work.effect_imports - present) if module != REGISTERING_MODULE or not registered
    )


def is_last_on_line(work: Work, statement: ast.stmt) -> bool:
    """Return True if no other statement follows on the same line."""
    end = work.source.span(statement)[1]
    following = next(work.source.tokens_from(end), None)
    return following is None or following.start >= work.source.line_stop(end)


def find_overwritten_names(work: Work, location: ast.stmt | None) -> list[str]:
    """Return the names that a star import of npu_init after `location` (None: at the top) would overwrite."""
    body = work.source.tree.body
    bound = work.names.scopes[work.source.tree].bound
    before = body[: body.index(location) + 1] if location is not None else []
    names = {name for statement in before for name in find_bound_names(statement)} & set(STAR_BINDINGS)
    return sorted(name for name in names if work.names.common_name(bound.get(name, [])) != STAR_BINDINGS[name])


def report_overwriting(work: Work, location: ast.stmt | None, names: list[str]) -> None:
    text = ", ".join(names)
    message = f"no star import of npu_init here: it would overwrite {text}; names are imported one by one"
    zh = f"此处不使用 npu_init 的星号导入:会覆盖 {text};改为逐个导入"
    line = work.lines[location.lineno - 1 if location is not None else 0]
    work.findings.append(Finding(work.path, line, line, 1, "engine.imports", "advice", "advice", message, zh, "low"))


def find_bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ImportNode):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, FunctionNode | ast.ClassDef):
        yield statement.name
    else:
        names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
        yield from (node.id for node in names if isinstance(node.ctx, ast.Store))


def used_names(work: Work) -> set[str]:
    return {node.id for node in work.source.of_kind(ast.Name)}


def render_imports(needed: dict[str, str], star: bool) -> list[str]:
    """Return import statements for names (local -> qualified). `star`: one star import for the names of npu_init."""
    lines: list[str] = []
    if star:
        starred = {local for local, full in needed.items() if STAR_NAMES.get(local) == full}
        needed = {local: full for local, full in needed.items() if local not in starred}
        lines += [f"from {NPU_INIT} import *"] if starred else []
    grouped: dict[str, list[str]] = defaultdict(list)
    for local, full in needed.items():
        module, _, name = full.rpartition(".")
        if not module:
            lines.append(f"import {name}" if local == name else f"import {name} as {local}")
        else:
            grouped[module].append(name if local == name else f"{name} as {local}")
    return lines + [f"from {module} import {name}" for module in sorted(grouped) for name in sorted(grouped[module])]


def find_header_end(work: Work) -> int:
    """Return the number of the line after the docstring, `from __future__` imports and comments at the top."""
    last = 0
    for index, statement in enumerate(work.source.tree.body):
        is_docstring = index == 0 and isinstance(statement, ast.Expr) and is_string(statement.value)
        if not is_docstring and imported_modules(statement) != ["__future__"]:
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
