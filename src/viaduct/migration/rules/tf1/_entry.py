"""Entry of a script: its main guard, its main function. Not a rule: Keras and the life cycle share it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from viaduct.migration.rule import Site, answer_once
from viaduct.migration.rules.tf1._exits import APP_RUN

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@answer_once
def main_guard(site: Site) -> ast.If | None:
    """`if __name__ == "__main__":`."""
    for statement in site.source.tree.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Compare):
            sides = [statement.test.left, *statement.test.comparators]
            named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
            if named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
                return statement
    return None


@answer_once
def main_function(site: Site) -> FunctionNode | None:
    """Return what `app.run`, `sys.exit(main())` or a plain `main()` at module level starts, if this file defines it."""
    defined = {node.name: node for node in site.source.tree.body if isinstance(node, FunctionNode)}
    for call in module_calls(site):
        runs = site.qualified(call.func) in APP_RUN or getattr(call.func, "attr", "") == "run"
        started = app_main(call) if runs else getattr(call.func, "id", "")
        if started in defined and (runs or "main" in started.lower()):
            return defined[started]
    return None


def app_main(call: ast.Call) -> str:
    """The function that app.run starts: its argument, or `main`."""
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "main")]
    return getattr(given[0], "id", "") if given else "main"


def module_calls(site: Site) -> Iterator[ast.Call]:
    """Calls that run when the script does, in order, those within the guard included."""
    from viaduct.migration.rules.tf1._keras import walk_executed

    for statement in site.source.tree.body:
        if not isinstance(statement, FunctionNode | ast.ClassDef):
            yield from (node for node in walk_executed(statement) if isinstance(node, ast.Call))


def first_reaching(site: Site, block: list[ast.stmt], hit: Callable[[ast.AST], bool]) -> ast.stmt | None:
    """The first statement of a block that holds such a node, or mentions what leads to one in this file."""
    leading = leading_to(site, hit)
    for statement in block:
        for node in ast.walk(statement):
            if hit(node) or (isinstance(node, ast.Name) and node.id in leading):
                return statement
    return None


def leading_to(site: Site, hit: Callable[[ast.AST], bool]) -> set[str]:
    """Functions and classes of this file in which such a node is, or a mention of another of them."""
    bodies = {node.name: node for node in site.source.tree.body if isinstance(node, FunctionNode | ast.ClassDef)}
    mentions = {
        name: {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} for name, node in bodies.items()
    }
    found = {name for name, node in bodies.items() if any(hit(child) for child in ast.walk(node))}
    while more := {name for name, used in mentions.items() if used & found} - found:
        found |= more
    return found


def first_statement(function: FunctionNode) -> ast.stmt:
    """Behind the docstring and `global`."""
    for index, statement in enumerate(function.body):
        text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (isinstance(statement, ast.Global) or (index == 0 and text)):
            return statement
    return function.body[-1]
