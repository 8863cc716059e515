"""Entry of a script: its main guard, its main function. Not a rule: those for Keras, life cycle and DDP share it."""

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
            has_name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
            if has_name and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
                return statement
    return None


@answer_once
def main_function(site: Site) -> FunctionNode | None:
    """Return the function of this file that the script starts at module level.

    That is the argument of the first `app.run(…)`, or of another method called `run`, or a function with "main" in its
    name that is called: `main()`, `sys.exit(main())`.
    """
    defined = {node.name: node for node in site.source.tree.body if isinstance(node, FunctionNode)}
    for call in module_calls(site):
        runs = site.qualified(call.func) in APP_RUN or getattr(call.func, "attr", "") == "run"
        started = app_main(call) if runs else getattr(call.func, "id", "")
        if started in defined and (runs or "main" in started.lower()):
            return defined[started]
    return None


def app_main(call: ast.Call) -> str:
    """Return the name of the function that app.run starts: its argument, or `main` without one."""
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "main")]
    return getattr(given[0], "id", "") if given else "main"


def module_calls(site: Site) -> Iterator[ast.Call]:
    """Yield the calls that run when the script does, those within the main guard included."""
    from viaduct.migration.rules.tf1._keras import walk_executed

    for statement in site.source.tree.body:
        if not isinstance(statement, FunctionNode | ast.ClassDef):
            yield from (node for node in walk_executed(statement) if isinstance(node, ast.Call))


def first_reaching(site: Site, block: list[ast.stmt], hit: Callable[[ast.AST], bool]) -> ast.stmt | None:
    """Return the first statement of a block that holds a hit, or mentions a function or class that leads to one."""
    leading = leading_to(site, hit)
    for statement in block:
        for node in ast.walk(statement):
            if hit(node) or (isinstance(node, ast.Name) and node.id in leading):
                return statement
    return None


def leading_to(site: Site, hit: Callable[[ast.AST], bool]) -> set[str]:
    """Return the functions and classes of this file that hold a hit, or mention another that leads to one."""
    bodies = {node.name: node for node in site.source.tree.body if isinstance(node, FunctionNode | ast.ClassDef)}
    mentions = {
        name: {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} for name, node in bodies.items()
    }
    found = {name for name, node in bodies.items() if any(hit(child) for child in ast.walk(node))}
    while more := {name for name, used in mentions.items() if used & found} - found:
        found |= more
    return found


def first_statement(function: FunctionNode) -> ast.stmt:
    """Return the first statement behind the docstring and `global`; the last one if there is no other."""
    for index, statement in enumerate(function.body):
        text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (isinstance(statement, ast.Global) or (index == 0 and text)):
            return statement
    return function.body[-1]
