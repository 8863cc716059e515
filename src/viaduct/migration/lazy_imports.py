"""Insert the import of the helper of `--to any` in a file without an import of torch at top level.

The helper, a module that queries the machine's accelerator, imports torch. If torch is imported in a `try` or only in
functions, the helper's import follows torch's, so that the script still starts without torch.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from viaduct.migration.findings import Finding
from viaduct.migration.names import Scope
from viaduct.migration.predicates import imported_modules, is_string
from viaduct.migration.source import FunctionNode, ImportNode

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile


def insert_helper_import(file: MigratedFile, local: str, lines: list[str]) -> bool:
    """Insert `lines`, which import the helper under the name `local`, where it is used; return False if impossible."""
    imported = (name for node in file.source.nodes for name in imported_modules(node))
    if not any(name.partition(".")[0] == "torch" for name in imported):
        return False
    statements = dict.fromkeys(find_statement(file, use) for use in find_unbound_uses(file, local))
    if None in statements:
        return False
    for statement in filter(None, statements):
        if isinstance(statement, ImportNode):
            file.edits.insert_after(statement, lines)
            if is_in_module_level_try(file, statement):
                report_optional_import(file, statement, local)
        else:
            file.edits.insert_before(statement, lines)
    return bool(statements)


def is_in_module_level_try(file: MigratedFile, statement: ast.stmt) -> bool:
    """Return True for a statement in a `try` outside functions and classes."""
    parents = list(file.source.ancestors(statement))
    in_definition = any(isinstance(parent, FunctionNode | ast.ClassDef) for parent in parents)
    return not in_definition and any(isinstance(parent, ast.Try) for parent in parents)


def find_import(body: list[ast.stmt], skipped_conditions: tuple[str, ...]) -> ast.stmt | None:
    """Return the import after which to insert: the last of the consecutive imports that begin with the first of torch.

    Blocks of `try`, `if` and `with` are searched too, except those of an `if` whose condition has a skipped text.
    """
    last_import = find_last_of_import_block(body, ("torch",))
    for statement in body if last_import is None else ():
        condition = ast.unparse(statement.test) if isinstance(statement, ast.If) else ""
        is_skipped = any(text in condition for text in skipped_conditions)
        if isinstance(statement, ast.Try | ast.If | ast.With) and not is_skipped:
            for block in (statement.body, getattr(statement, "orelse", [])):
                last_import = last_import or find_import(block, skipped_conditions)
    return last_import


def find_last_of_import_block(body: list[ast.stmt], roots: Collection[str]) -> ast.stmt | None:
    """Return the last of the consecutive imports from the first import of one of these top-level modules on."""
    for index, statement in enumerate(body):
        if any(name.partition(".")[0] in roots for name in imported_modules(statement)):
            block = takewhile(lambda following: isinstance(following, ImportNode), body[index:])
            return [*block][-1]
    return None


def find_unbound_uses(file: MigratedFile, local: str) -> Iterator[ast.AST]:
    """Yield the uses of a name that the file does not bind."""
    for node in file.source.nodes_of_type(ast.Name):
        if node.id == local and file.names.lookup(local, file.names.scope_of(node)) is None:
            yield node


def find_statement(file: MigratedFile, use: ast.AST) -> ast.stmt | None:
    """Return the statement at which the helper's import is inserted for a use; None if there is none.

    It is inserted after an import of torch in the function or class around the use or in the module, else before the
    first statement of the outermost function.
    """
    function: FunctionNode | None = None
    innermost = file.names.scope_of(use)
    scope: Scope | None = innermost
    while scope is not None:
        node = scope.node
        if isinstance(node, FunctionNode | ast.Module) or (isinstance(node, ast.ClassDef) and scope is innermost):
            # When a function is called, all imports of the module have run, except those under `if TYPE_CHECKING:` and
            # `if __name__ == "__main__":`.
            has_run = isinstance(node, ast.Module) and function is not None
            statement = find_import(node.body, ("TYPE_CHECKING", "__name__") if has_run else ("TYPE_CHECKING",))
            if statement is not None and (has_run or file.source.positions[statement] <= file.source.positions[use]):
                return statement
        function = node if isinstance(node, FunctionNode) else function
        scope = scope.outer
    return first_statement(function) if function is not None else None


def first_statement(function: FunctionNode) -> ast.stmt:
    """Return the first statement of a function after its docstring; the docstring if there is no other."""
    first, *remaining = function.body
    return remaining[0] if remaining and isinstance(first, ast.Expr) and is_string(first.value) else first


def report_optional_import(file: MigratedFile, statement: ast.stmt, local: str) -> None:
    """Report that `local` is not bound if the import of torch fails."""
    line = file.original_lines[statement.lineno - 1]
    message = f"if the import of torch fails, {local} is not defined either: test for torch before using it"
    zh = f"{local} 与 torch 一同导入:若 torch 导入失败,{local} 也不存在,使用前请先判断 torch 是否可用"
    file.findings.append(Finding(file.path, line, line, 1, "engine.imports", "advice", "advice", message, zh, "low"))
