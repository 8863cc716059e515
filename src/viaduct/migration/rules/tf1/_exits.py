"""Exits of a block of statements, and insertion at its end. Not a rule: closing rules share it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache

from viaduct.migration.names import Function
from viaduct.migration.rule import Site, answer_once
from viaduct.migration.rules.tf1 import _config_proto as proto

PLAIN_EXITS = {"sys.exit", "os._exit", "exit", "quit"}
TEST_MAINS = {
    *("tensorflow.test.main", "tensorflow.python.platform.googletest.main", "tensorflow.python.platform.test.main"),
    *("unittest.main", "absl.testing.absltest.main"),
}
EXIT_CALLS = {*PLAIN_EXITS, *TEST_MAINS, "tensorflow.app.run", "absl.app.run"}  # nothing behind them runs
RUNNERS = ("app.run", "test.main", "unittest.main", "absltest.main", "googletest.main")
APP_RUN = ("tensorflow.app.run", "absl.app.run")


def exits(site: Site, statements: list[ast.stmt], skip: ast.stmt | None = None) -> Iterator[ast.stmt]:
    """Statements that leave the block: return, exit, and break or continue of a loop around it."""
    for statement in statements:
        if statement is not skip:
            yield from exits_of(site)(statement)


@answer_once
def exits_of(site: Site) -> Callable[[ast.stmt], tuple[ast.stmt, ...]]:
    """Return what finds the exits of one statement and remembers them: sessions of a block ask for the same ones."""
    return cache(lambda statement: tuple(_exits(statement, within_loop=False)))


def _exits(node: ast.AST, within_loop: bool) -> Iterator[ast.stmt]:
    leaves = isinstance(node, ast.Return) or is_exit(node)
    leaves = leaves or (isinstance(node, ast.Break | ast.Continue) and not within_loop)
    if leaves and isinstance(node, ast.stmt):
        yield node
    if isinstance(node, Function | ast.ClassDef | ast.expr):
        return
    for field, value in ast.iter_fields(node):
        looped = within_loop or (isinstance(node, ast.For | ast.AsyncFor | ast.While) and field == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _exits(child, looped)


def is_exit(node: ast.AST) -> bool:
    """`sys.exit(…)`, `raise SystemExit`."""
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "SystemExit"
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and dotted_name(call.func) in PLAIN_EXITS


def dotted_name(node: ast.AST) -> str:
    """`sys.exit` as it is written; empty for what is no dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def runs_script(site: Site, statements: list[ast.stmt]) -> bool:
    """Return True if one of them runs the rest of the script and then ends it: `tf.app.run()`, `tf.test.main()`."""
    return any(site.source.is_within(call, [statement]) for call in running_calls(site) for statement in statements)


@answer_once
def running_calls(site: Site) -> list[ast.Call]:
    """Calls of this file that run a script and then end it."""
    names = tuple(f".{name}" for name in RUNNERS)
    return [call for call in site.source.of_kind(ast.Call) if f".{dotted_name(call.func)}".endswith(names)]


def ends(statement: ast.stmt) -> bool:
    """Return True if nothing behind it can run."""
    if is_exit(statement):
        return True
    if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return True
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and ends(statement.body[-1]) and ends(statement.orelse[-1])
    return isinstance(statement, ast.With | ast.AsyncWith) and ends(statement.body[-1])


def is_endless(statement: ast.stmt) -> bool:
    """`while True` without a way out of it."""
    if not isinstance(statement, ast.While):
        return False
    test = statement.test
    is_true = isinstance(test, ast.Constant) and bool(test.value)
    return is_true and not any(True for inner in statement.body for _ in _exits(inner, within_loop=False))


def at_end(site: Site, statements: list[ast.stmt], lines: list[str], skip: ast.stmt | None = None) -> None:
    """New statements where the block ends and before each way out of it (but those within `skip`)."""
    for statement in exits(site, statements, skip):
        before_leaving(site, statement, lines)
    if skip is None and not ends(statements[-1]):
        site.edit.insert_after(statements[-1], lines)


def before_leaving(site: Site, statement: ast.stmt, lines: list[str]) -> None:
    """A returned value that must be computed first is computed first."""
    value = statement.value if isinstance(statement, ast.Return) else exit_code(statement)
    if value is None or not computes(value):
        site.edit.insert_before(statement, lines)
        return
    name = result_name(site, statement)
    site.edit.insert_before(statement, [f"{name} = {add_parentheses(site, value)}", *lines])
    site.edit.replace(*site.source.span(value), name)  # its comments have moved with it
    site.changed(
        f"the value is computed first, then {lines[0]}, then it is returned",
        zh=f"先计算返回值,再执行 {lines[0]},然后返回",
        node=statement,
    )


def exit_code(statement: ast.stmt) -> ast.expr | None:
    """Return what `sys.exit` or `SystemExit` is given."""
    call = statement.value if isinstance(statement, ast.Expr) else getattr(statement, "exc", None)
    return call.args[0] if isinstance(call, ast.Call) and call.args else None


def result_name(site: Site, statement: ast.stmt) -> str:
    """One name for all returns of a function."""
    function = site.source.function(statement)
    for mark in site.work.seen:
        if mark[:2] == ("result", function):
            return str(mark[2])
    name = proto.local_name(site, statement, "result")
    site.work.seen[("result", function, name)] = None
    return name


def add_parentheses(site: Site, value: ast.expr) -> str:
    """Values that go on over several lines lose the parentheses of their return, and may need them."""
    text = site.text(value)
    try:
        alone = len(ast.parse(f"x = {text}").body) == 1
    except SyntaxError:
        alone = False
    return text if alone else f"({text})"


def computes(value: ast.expr) -> bool:
    quiet = ast.Name | ast.Constant | ast.Attribute | ast.Tuple | ast.List | ast.Dict | ast.expr_context
    return not all(isinstance(node, quiet) for node in ast.walk(value))


def leaves_early(site: Site, statements: list[ast.stmt]) -> bool:
    """Return True if a call among them ends the program, so that nothing behind it runs."""
    run = [line for line in statements if not isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return any(site.source.is_within(call, [statement]) for call in ending_calls(site) for statement in run)


@answer_once
def ending_calls(site: Site) -> list[ast.Call]:
    """Calls of this file that end the program."""
    calls = site.source.of_kind(ast.Call)
    return [call for call in calls if (site.qualified(call.func) or getattr(call.func, "id", "")) in EXIT_CALLS]
