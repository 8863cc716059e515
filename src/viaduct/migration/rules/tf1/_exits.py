"""Exits of a block of statements, such as `return` and `sys.exit()`, and insertion of lines before them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache

from viaduct.migration.lookups import dotted_name, plain_name
from viaduct.migration.names import Function
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.rules._entry import APP_RUN
from viaduct.migration.rules.tf1._tensorflow_names import reserve_local_name
from viaduct.migration.source import FunctionNode

EXIT_FUNCTIONS = {"sys.exit", "os._exit", "exit", "quit"}
TEST_MAINS = {
    "tensorflow.test.main", "tensorflow.python.platform.googletest.main", "tensorflow.python.platform.test.main",
    "unittest.main", "absl.testing.absltest.main",
}  # fmt: skip
ENDING_FUNCTIONS = {*EXIT_FUNCTIONS, *TEST_MAINS, *APP_RUN}  # no code after them runs


def find_exits(site: Site, statements: list[ast.stmt], skip: ast.stmt | None = None) -> Iterator[ast.stmt]:
    """Yield the statements that leave the block (return, exit, break and continue of outer loops), except in `skip`."""
    for statement in statements:
        if statement is not skip:
            yield from get_exit_finder(site)(statement)


@cache_per_file
def get_exit_finder(site: Site) -> Callable[[ast.stmt], tuple[ast.stmt, ...]]:
    """Return a cached function that finds the exits of a statement."""
    return cache(lambda statement: tuple(find_exits_within(statement, in_loop=False)))


def find_exits_within(node: ast.AST, in_loop: bool) -> Iterator[ast.stmt]:
    """Yield a node and the statements in it that leave the block; in a loop, break and continue do not."""
    leaves_loop = isinstance(node, ast.Break | ast.Continue) and not in_loop
    if isinstance(node, ast.stmt) and (leaves_loop or isinstance(node, ast.Return) or is_exit(node)):
        yield node
    if isinstance(node, Function | ast.ClassDef | ast.expr):
        return
    for field, value in ast.iter_fields(node):
        is_loop_body = isinstance(node, ast.For | ast.AsyncFor | ast.While) and field == "body"
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from find_exits_within(child, in_loop or is_loop_body)


def is_exit(node: ast.AST) -> bool:
    """Return True for the statements `sys.exit(…)`, `quit()` and the like, and `raise SystemExit`."""
    if isinstance(node, ast.Raise):
        return plain_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc) == "SystemExit"
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and dotted_name(call.func) in EXIT_FUNCTIONS


def runs_main_and_exits(site: Site, statements: list[ast.stmt]) -> bool:
    """Return True if a statement runs the script's main function and then exits: `tf.app.run()`, `tf.test.main()`."""
    calls = [call for call in find_ending_calls(site) if dotted_name(call.func) not in EXIT_FUNCTIONS]
    return any(site.source.is_within(call, [statement]) for call in calls for statement in statements)


def is_end_of_block(statement: ast.stmt) -> bool:
    """Return True if no statement after this one in its block can run."""
    if is_exit(statement) or isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return True
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and is_end_of_block(statement.body[-1]) and is_end_of_block(statement.orelse[-1])
    return isinstance(statement, ast.With | ast.AsyncWith) and is_end_of_block(statement.body[-1])


def is_endless(statement: ast.stmt) -> bool:
    """Return True for a `while True` whose body has no break, continue, return or exit."""
    if not isinstance(statement, ast.While):
        return False
    test = statement.test
    is_true = isinstance(test, ast.Constant) and bool(test.value)
    return is_true and not any(True for inner in statement.body for _ in find_exits_within(inner, in_loop=False))


def insert_at_exits(site: Site, statements: list[ast.stmt], lines: list[str], skip: ast.stmt | None = None) -> None:
    """Insert lines before each exit of a block and after its end.

    With `skip`, a `try` whose `finally` has the lines, insert them only before exits outside of it.
    """
    for statement in find_exits(site, statements, skip):
        insert_before_exit(site, statement, lines)
    if skip is None and not is_end_of_block(statements[-1]):
        site.edit.insert_after(statements[-1], lines)


def insert_before_exit(site: Site, statement: ast.stmt, lines: list[str]) -> None:
    """Insert lines before a return or an exit; a value that it computes is then computed before the lines."""
    value = statement.value if isinstance(statement, ast.Return) else get_exit_code(statement)
    if value is None or not is_computed(value):
        site.edit.insert_before(statement, lines)
        return
    name = get_result_name(site, statement)
    site.edit.insert_before(statement, [f"{name} = {add_parentheses(site, value)}", *lines])
    site.edit.replace(*site.source.span(value), name)  # its comments have moved with it
    is_return = isinstance(statement, ast.Return)
    site.report_change(
        f"the value is computed first, then {lines[0]}, then it is {'returned' if is_return else 'passed to the exit'}",
        zh=f"先计算{'返回值' if is_return else '退出值'},再执行 {lines[0]},然后{'返回' if is_return else '退出'}",
        node=statement,
    )


def get_exit_code(statement: ast.stmt) -> ast.expr | None:
    """Return the first argument of `sys.exit` or `SystemExit`, if there is one."""
    call = statement.value if isinstance(statement, ast.Expr) else getattr(statement, "exc", None)
    return call.args[0] if isinstance(call, ast.Call) and call.args else None


def get_result_name(site: Site, statement: ast.stmt) -> str:
    """Return the name of the variable for returned values, the same for all returns of a function."""
    function = site.source.function_around(statement)
    for mark in site.file.handled:
        if mark[:2] == ("result", function):
            return str(mark[2])
    name = reserve_local_name(site, statement, "result")
    site.file.handled[("result", function, name)] = None
    return name


def add_parentheses(site: Site, value: ast.expr) -> str:
    """Return the text of a value, in parentheses if it has several lines that need them."""
    text = site.text_of(value)
    try:
        is_complete = len(ast.parse(f"x = {text}").body) == 1
    except SyntaxError:
        is_complete = False
    return text if is_complete else f"({text})"


def is_computed(value: ast.expr) -> bool:
    """Return True for a value other than names, attributes, constants and collections of them."""
    simple = ast.Name | ast.Constant | ast.Attribute | ast.Tuple | ast.List | ast.Dict | ast.expr_context
    return not all(isinstance(node, simple) for node in ast.walk(value))


def ends_program(site: Site, statements: list[ast.stmt]) -> bool:
    """Return True if a call in the statements, except in definitions, ends the program."""
    executed = [statement for statement in statements if not isinstance(statement, FunctionNode | ast.ClassDef)]
    return any(site.source.is_within(call, [statement]) for call in find_ending_calls(site) for statement in executed)


@cache_per_file
def find_ending_calls(site: Site) -> list[ast.Call]:
    calls = site.source.nodes_of_type(ast.Call)
    return [call for call in calls if (site.qualified_name(call.func) or plain_name(call.func)) in ENDING_FUNCTIONS]
