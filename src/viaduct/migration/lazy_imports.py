"""Import of the helper of `--to any` in a file without an import of torch at top level.

The helper imports torch. If torch may be missing (`try: import torch`) or is imported only in functions, the helper's
import is placed behind torch's: so a script that starts without torch still does, and as fast.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viaduct.migration.findings import Finding
from viaduct.migration.names import Scope

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

Function = ast.FunctionDef | ast.AsyncFunctionDef
CHECKERS, MAIN = "TYPE_CHECKING", "__name__"
Import = ast.Import | ast.ImportFrom


def insert(work: Work, local: str, lines: list[str]) -> bool:
    """Insert the import behind each import of torch that the uses of `local` need; return False if one has no place.

    Then the caller inserts it at the top of the file.
    """
    if not any(isinstance(node, Import) and is_in_torch_program(node) for node in work.source.nodes):
        return False
    entries = {use: place_of(work, use) for use in loose_uses(work, local)}
    if None in entries.values():
        return False
    for entry in dict.fromkeys(record for record in entries.values() if record is not None):
        put = work.edits.insert_after if isinstance(entry, Import) else work.edits.insert_before
        put(entry, lines)
        if isinstance(entry, Import) and is_optional(work, entry):
            report_lazy_import(work, entry, local)
    return bool(entries)


def is_optional(work: Work, statement: ast.stmt) -> bool:
    """Return True for an import in a `try` of the module."""
    around = list(work.source.ancestors(statement))
    return not any(isinstance(ancestor, Function | ast.ClassDef) for ancestor in around) and any(
        isinstance(parent, ast.Try) for parent in around
    )


def find_guarded_import(body: list[ast.stmt], skipped: tuple[str, ...]) -> ast.stmt | None:
    """Return an import of torch within `try`, `if` or `with`, but not under a condition that mentions `skipped`."""
    held = [statement for statement in body if isinstance(statement, ast.Try | ast.If | ast.With)]
    held = [node for node in held if not (isinstance(node, ast.If) and asks(node.test, skipped))]
    blocks = [block for item in held for block in (item.body, getattr(item, "orelse", []))]
    return next((found for block in blocks if (found := import_in(block, skipped)) is not None), None)


def asks(test: ast.expr, names: tuple[str, ...]) -> bool:
    return any(name in ast.unparse(test) for name in names)


def import_in(body: list[ast.stmt], skipped: tuple[str, ...]) -> ast.stmt | None:
    """Return the last import of the block with the first import of torch; else look within `try`, `if`, `with`."""
    for index, statement in enumerate(body):
        if isinstance(statement, Import) and is_in_torch_program(statement):
            while index + 1 < len(body) and isinstance(body[index + 1], Import):
                index += 1
            return body[index]
    return find_guarded_import(body, skipped)


def is_in_torch_program(node: Import) -> bool:
    """Return True for an import of torch or a part of it."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").partition(".")[0] == "torch"
    return any(alias.name.partition(".")[0] == "torch" for alias in node.names)


def loose_uses(work: Work, local: str) -> Iterator[ast.AST]:
    """Yield the uses of a name that nothing in the file binds yet."""
    for node in work.source.nodes:
        named = isinstance(node, ast.Name) and node.id == local
        if named and work.names.lookup(local, work.names.scope_of(node)) is None:
            yield node


def place_of(work: Work, use: ast.AST) -> ast.stmt | None:
    """Return the statement at which a use needs the import; None if there is no place.

    It is an import of torch in the function or class around the use or in the module (the import goes behind it), or
    else the first statement of the outermost function (the import goes before it).
    """
    function: Function | None = None
    own = work.names.scope_of(use)
    scope: Scope | None = own
    while scope is not None:
        node = scope.node
        if isinstance(node, Function | ast.Module) or (isinstance(node, ast.ClassDef) and scope is own):
            later = isinstance(node, ast.Module) and function is not None  # a function runs when the module is there
            found = import_in(node.body, (CHECKERS, MAIN) if later else (CHECKERS,))
            if found is not None and (work.source.places[found] <= work.source.places[use] or later):
                return found
        function = node if isinstance(node, Function) else function
        scope = scope.outer
    return first_statement(function) if function is not None else None


def first_statement(function: Function) -> ast.stmt:
    """Return the first statement of a function behind its docstring."""
    first, *others = function.body
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return others[0] if is_docstring and others else first


def report_lazy_import(work: Work, statement: ast.stmt, local: str) -> None:
    """Report a name that does not exist where the import of torch fails."""
    line = work.lines[statement.lineno - 1]
    message = f"{local} is imported with torch: where that fails there is no {local} either, so ask for torch before it"
    zh = f"{local} 与 torch 一同导入:若 torch 导入失败,{local} 也不存在,使用前请先判断 torch 是否可用"
    work.findings.append(Finding(work.path, line, line, 1, "engine.imports", "advice", "advice", message, zh, "low"))
