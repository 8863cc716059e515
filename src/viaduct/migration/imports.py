"""Insert imports of the names that rules have requested (rows I1, I2 and I3 of the table in docs/rules.md).

Each name gets an explicit import; with `--imports star` it comes from the star import of npu_init. The imports are
inserted after the block of imports that begins with the file's first top-level import of a framework. Without one, they
follow the docstring, `from __future__` imports and comments at the top. With `--to any` they may follow an import of
torch in a function or a `try` (lazy_imports.py), and a notebook gets the helper itself in a cell (helper_cell.py).
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
    from viaduct.migration.engine import MigratedFile

REGISTERING_MODULE = full_name("npu_ops")
"""Importing this module registers the NPU with TensorFlow; so does any other npu_bridge module."""


def insert_imports(file: MigratedFile) -> MigratedFile:
    """Insert the imports that rules have requested: `file.needed_imports` and `file.side_effect_imports`."""
    is_notebook = file.path.endswith(".ipynb")
    if file.options.to == "any" and is_notebook:
        file = helper_cell.extend_cell(file)
    used_names = find_used_names(file)
    # Local name -> qualified name.
    needed = {local: full for local, full in file.needed_imports.items() if local in used_names}
    for module in find_missing_modules(file, needed):
        needed[file.reserve_name(module.rpartition(".")[2])] = module
    if not needed:
        return file
    anchor = lazy_imports.find_last_of_import_block(file.source.tree.body, FRAMEWORKS)
    overwritten = find_overwritten_names(file, anchor) if file.options.imports == "star" else []
    if overwritten:
        report_overwriting(file, anchor, overwritten)
    lines = render_imports(needed, star=file.options.imports == "star" and not overwritten)
    if anchor is None and file.options.to == "any" and not is_notebook:
        helper = next(iter(needed))  # with --to any only the helper is needed
        if lazy_imports.insert_helper_import(file, helper, lines):
            return file.apply_edits()
    if is_notebook:
        lines = helper_cell.replace_import_by_cell(file, lines, file.project.helper_module_of(file.path))
    if anchor is None:
        newline, line_number = file.source.newline, find_header_end(file)
        start = file.source.line_starts[line_number - 1] if line_number <= len(file.source.line_starts) else 0
        file.edits.insert(start, "".join(line + newline for line in lines) + newline)
    else:
        file.edits.insert_after(anchor, lines)
    return file.apply_edits()


def find_missing_modules(file: MigratedFile, needed: dict[str, str]) -> list[str]:
    """Return the modules to import for their side effects that the file does not import yet."""
    present = {name.partition(".")[0] for node in file.source.imports for name in imported_modules(node)}
    missing = file.side_effect_imports - present
    if NPU_BRIDGE in present or any(name.partition(".")[0] == NPU_BRIDGE for name in needed.values()):
        missing -= {REGISTERING_MODULE}
    return sorted(missing)


def find_overwritten_names(file: MigratedFile, anchor: ast.stmt | None) -> list[str]:
    """Return the names that a star import of npu_init after `anchor` (None: at the top) would overwrite."""
    body = file.source.tree.body
    bound = file.names.scopes[file.source.tree].bindings
    before = body[: body.index(anchor) + 1] if anchor is not None else []
    names = {name for statement in before for name in find_bound_names(statement)} & set(STAR_BINDINGS)
    return sorted(name for name in names if file.names.common_name(bound.get(name, [])) != STAR_BINDINGS[name])


def report_overwriting(file: MigratedFile, anchor: ast.stmt | None, names: list[str]) -> None:
    text = ", ".join(names)
    message = f"no star import of npu_init here: it would overwrite {text}; names are imported one by one"
    zh = f"此处不使用 npu_init 的星号导入:会覆盖 {text};改为逐个导入"
    line = file.original_lines[anchor.lineno - 1 if anchor is not None else 0]
    file.findings.append(Finding(file.path, line, line, 1, "engine.imports", "advice", "advice", message, zh, "low"))


def find_bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a module-level statement binds."""
    if isinstance(statement, ImportNode):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, FunctionNode | ast.ClassDef):
        yield statement.name
    else:
        names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
        yield from (node.id for node in names if isinstance(node.ctx, ast.Store))


def find_used_names(file: MigratedFile) -> set[str]:
    return {node.id for node in file.source.nodes_of_type(ast.Name)}


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


def find_header_end(file: MigratedFile) -> int:
    """Return the number of the line after the docstring, `from __future__` imports and comments at the top."""
    last = 0
    for index, statement in enumerate(file.source.tree.body):
        is_docstring = index == 0 and isinstance(statement, ast.Expr) and is_string(statement.value)
        if not is_docstring and imported_modules(statement) != ["__future__"]:
            break
        last = statement.end_lineno or 0
    text = file.source.text
    while last < len(file.source.line_starts):
        start = file.source.line_starts[last]
        line = text[start : file.source.line_stop(start)].strip()
        if not line.startswith("#"):
            break
        last += 1
    return last + 1
