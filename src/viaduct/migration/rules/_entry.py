"""Entry of a script: its main guard and its main function, in the file of the `site`, and calls in its program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from viaduct.migration.import_graph import find_programs
from viaduct.migration.lookups import keyword_value, plain_name, walk_executed
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.source import FunctionNode

APP_RUN = ("tensorflow.app.run", "absl.app.run")


@cache_per_file
def find_main_guard(site: Site) -> ast.If | None:
    """Return the statement `if __name__ == "__main__":` of this file; None if it has none."""
    for statement in site.source.tree.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Compare):
            operands = [statement.test.left, *statement.test.comparators]
            has_name = any(plain_name(operand) == "__name__" for operand in operands)
            if has_name and any(is_literal_in(operand, "__main__") for operand in operands):
                return statement
    return None


@cache_per_file
def find_main_function(site: Site) -> FunctionNode | None:
    """Return the function of this file that module-level code starts first, by `app.run(…)`, `x.run(…)` or `main()`.

    A function that is called directly must have "main" in its name.
    """
    defined = {node.name: node for node in site.source.tree.body if isinstance(node, FunctionNode)}
    for call in find_module_calls(site):
        is_runner = site.qualified_name(call.func) in APP_RUN or getattr(call.func, "attr", "") == "run"
        name = find_run_function(call) if is_runner else plain_name(call.func)
        if name in defined and (is_runner or "main" in name.lower()):
            return defined[name]
    return None


def find_run_function(call: ast.Call) -> str:
    """Return the name of the function that app.run starts: its argument, by default `main`."""
    argument = call.args[0] if call.args else keyword_value(call, "main")
    return "main" if argument is None else plain_name(argument)


def is_imported_by_others(site: Site) -> bool:
    """Return True if another file of the project imports this one."""
    project, path = site.file.project, site.file.path
    return bool(project.importers.get(path)) or project.module_of(path)[0] in project.plain_imported_names


def is_called_in_program(site: Site, names: Iterable[str]) -> bool:
    """Return True if this file, or another file of a program with it, calls one of these functions."""
    project, names = site.file.project, tuple(names)
    if any(name in site.file.index.calls for name in names):
        return True
    calling = {path for name in names for path in project.files_calling.get(name, ())}
    return any(files & calling for files in find_programs(project, site.file.path))


def find_module_calls(site: Site) -> Iterator[ast.Call]:
    """Yield the calls in module-level code, the main guard included, in the order of its statements."""
    for statement in site.source.tree.body:
        if not isinstance(statement, FunctionNode | ast.ClassDef):
            yield from (node for node in walk_executed(statement) if isinstance(node, ast.Call))


def first_statement_reaching(site: Site, block: list[ast.stmt], matches: Callable[[ast.AST], bool]) -> ast.stmt | None:
    """Return the first statement of a block that runs a matching node, directly or through functions of this file."""
    leading = names_leading_to(site, matches)
    for statement in block:
        for node in ast.walk(statement):
            if matches(node) or plain_name(node) in leading:
                return statement
    return None


def names_leading_to(site: Site, matches: Callable[[ast.AST], bool]) -> set[str]:
    """Return the functions and classes of this file that contain a matching node, or mention others that do."""
    definitions = {node.name: node for node in site.source.tree.body if isinstance(node, FunctionNode | ast.ClassDef)}
    mentions = {name: {plain_name(inner) for inner in ast.walk(node)} for name, node in definitions.items()}
    leading = {name for name, node in definitions.items() if any(matches(inner) for inner in ast.walk(node))}
    while added := {name for name, mentioned in mentions.items() if mentioned & leading} - leading:
        leading |= added
    return leading


def select_executed(block: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a block that are neither definitions nor imports."""
    excluded = FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom
    return [statement for statement in block if not isinstance(statement, excluded)]


def first_statement_of_main(site: Site) -> ast.stmt | None:
    """Return the first statement of the main function, else of the main guard; None if there is neither."""
    main, guard = find_main_function(site), find_main_guard(site)
    if main is not None:
        return first_statement(main)
    return guard.body[0] if guard is not None else None


def first_statement(function: FunctionNode) -> ast.stmt:
    """Return the first statement that is no docstring and no `global`, else the last statement."""
    for index, statement in enumerate(function.body):
        is_docstring = index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (isinstance(statement, ast.Global) or is_docstring):
            return statement
    return function.body[-1]
