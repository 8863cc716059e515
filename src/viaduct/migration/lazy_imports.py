"""Import of the helper of `--to any` in a file without an import of torch at top level.

The helper imports torch. If torch may be missing (`try: import torch`) or is imported only in functions, the helper's
import is inserted behind torch's. So a script that could start without torch still can, as fast as before.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from viaduct.migration.findings import Finding
from viaduct.migration.names import Scope
from viaduct.migration.predicates import imported_modules, is_string

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom


def insert(work: Work, local: str, lines: list[str]) -> bool:
    """Insert the import lines of `local` where its uses need them; return False, with nothing inserted, if that fails.

    It fails if the file has no import of torch, or a use has no statement for it (`find_statement`). The caller then
    inserts the lines at the top of the file.
    """
    if not any("torch" in map(root_of, imported_modules(node)) for node in work.source.nodes):
        return False
    statements = {use: find_statement(work, use) for use in unbound_uses(work, local)}
    if None in statements.values():
        return False
    for statement in dict.fromkeys(found for found in statements.values() if found is not None):
        if isinstance(statement, Import):
            work.edits.insert_after(statement, lines)
            if is_optional(work, statement):
                report_lazy_import(work, statement, local)
        else:
            work.edits.insert_before(statement, lines)
    return bool(statements)


def is_optional(work: Work, statement: ast.stmt) -> bool:
    """Return True for an import in a `try` of the module, outside functions and classes."""
    parents = list(work.source.ancestors(statement))
    in_definition = any(isinstance(parent, Function | ast.ClassDef) for parent in parents)
    return not in_definition and any(isinstance(parent, ast.Try) for parent in parents)


def find_import(body: list[ast.stmt], skipped: tuple[str, ...]) -> ast.stmt | None:
    """Return the last of the imports that begin with the first one of torch; else one within a `try`, `if` or `with`.

    An `if` whose condition contains one of the `skipped` texts is not looked into.
    """
    found = last_of_import_block(body, ("torch",))
    for statement in body if found is None else ():
        is_skipped = isinstance(statement, ast.If) and any(text in ast.unparse(statement.test) for text in skipped)
        if isinstance(statement, ast.Try | ast.If | ast.With) and not is_skipped:
            for block in (statement.body, getattr(statement, "orelse", [])):
                found = found or find_import(block, skipped)
    return found


def last_of_import_block(body: list[ast.stmt], roots: Collection[str]) -> ast.stmt | None:
    """Return the last of the consecutive imports that begin with the first import of one of these top-level modules."""
    for index, statement in enumerate(body):
        if any(name.partition(".")[0] in roots for name in imported_modules(statement)):
            block = takewhile(lambda following: isinstance(following, Import), body[index:])
            return [*block][-1]
    return None


def root_of(module: str) -> str:
    return module.partition(".")[0]


def unbound_uses(work: Work, local: str) -> Iterator[ast.AST]:
    """Yield the uses of a name that nothing in the file binds yet."""
    for node in work.source.of_kind(ast.Name):
        if node.id == local and work.names.lookup(local, work.names.scope_of(node)) is None:
            yield node


def find_statement(work: Work, use: ast.AST) -> ast.stmt | None:
    """Return the statement at which a use needs the import; None if there is none.

    It is an import of torch in the function or class around the use or in the module (the helper's import goes behind
    it), or else the first statement of the outermost function (the helper's import goes before it).
    """
    function: Function | None = None
    innermost = work.names.scope_of(use)
    scope: Scope | None = innermost
    while scope is not None:
        node = scope.node
        if isinstance(node, Function | ast.Module) or (isinstance(node, ast.ClassDef) and scope is innermost):
            # When a function is called, all imports of its module have run, but not those under these conditions.
            is_later = isinstance(node, ast.Module) and function is not None
            found = find_import(node.body, ("TYPE_CHECKING", "__name__") if is_later else ("TYPE_CHECKING",))
            if found is not None and (is_later or work.source.places[found] <= work.source.places[use]):
                return found
        function = node if isinstance(node, Function) else function
        scope = scope.outer
    return first_statement(function) if function is not None else None


def first_statement(function: Function) -> ast.stmt:
    """Return the first statement of a function behind its docstring; the docstring if there is nothing else."""
    first, *others = function.body
    return others[0] if others and isinstance(first, ast.Expr) and is_string(first.value) else first


def report_lazy_import(work: Work, statement: ast.stmt, local: str) -> None:
    """Report that `local` is not bound if the import of torch fails."""
    line = work.lines[statement.lineno - 1]
    message = f"{local} is imported with torch: if that fails there is no {local} either, so test for torch first"
    zh = f"{local} 与 torch 一同导入:若 torch 导入失败,{local} 也不存在,使用前请先判断 torch 是否可用"
    work.findings.append(Finding(work.path, line, line, 1, "engine.imports", "advice", "advice", message, zh, "low"))
