"""Lookups that many rules share: names as written, arguments, parameters, bindings, classes."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from viaduct.migration.names import Bindings, Function, Names
from viaduct.migration.source import FunctionNode, ImportNode

if TYPE_CHECKING:
    from viaduct.migration.rule import Site


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a name as written, `Stream` of `torch.cuda.Stream`; "" for anything else."""
    name: str = getattr(node, "attr", getattr(node, "id", ""))
    return name


def called_name(node: ast.AST | None) -> str:
    """Return the last part of the called function's name, as written; "" for anything but a call."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def plain_name(node: ast.AST | None) -> str:
    """Return a name without dots; "" for anything else."""
    return node.id if isinstance(node, ast.Name) else ""


def dotted_name(node: ast.AST) -> str:
    """Return a dotted name as written, `t.cuda.Stream`; "" for anything else."""
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return plain_name(node)


def method_name(call: ast.Call) -> str:
    """Return `to` of `x.to(device)`; "" for a call of a plain name and anything else."""
    name: str = getattr(call.func, "attr", "")
    return name


def is_self_attribute(node: ast.AST) -> bool:
    """Return True for `self.name`."""
    return isinstance(node, ast.Attribute) and plain_name(node.value) == "self"


def literal_text(node: ast.AST | None) -> str:
    """Return the value of a string literal; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def elements(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple, list or set; the expression itself if it is none of them."""
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]


def branches(node: ast.expr) -> list[ast.expr]:
    """Return the branches of a conditional expression, also nested ones; of another expression, itself."""
    return [*branches(node.body), *branches(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def imported_names(statement: ImportNode) -> list[str]:
    """Return the qualified names that an import statement imports; none for a relative import."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [] if statement.level else [f"{statement.module}.{alias.name}" for alias in statement.names]


def sole_target(statement: ast.AST) -> ast.expr | None:
    """Return the target of `target = value` or `target: type = value`; None for `a = b = value` and anything else."""
    if isinstance(statement, ast.Assign):
        return statement.targets[0] if len(statement.targets) == 1 else None
    return statement.target if isinstance(statement, ast.AnnAssign) else None


def walk_executed(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes in a statement except the bodies of functions and lambdas."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, Function):
            pending += node.decorator_list if isinstance(node, FunctionNode) else []
            pending += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        else:
            pending += ast.iter_child_nodes(node)


def argument_values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def keyword_value(call: ast.Call, *names: str) -> ast.expr | None:
    """Return the value of the first keyword argument with one of these names; None if there is none."""
    return next((keyword.value for keyword in call.keywords if keyword.arg in names), None)


def positional_parameters(function: Function) -> list[str]:
    """Return the names of the parameters that can be given by position."""
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]


def find_parameter(
    function: Function, call: ast.Call, argument: ast.expr | ast.keyword, is_method: bool = False
) -> str | None:
    """Return the parameter that gets an argument of a call; None if the text does not show it, as behind `*` or `**`.

    `is_method`: a first parameter `self` or `cls` is not passed in the parentheses.
    """
    parameters = positional_parameters(function)
    if isinstance(argument, ast.keyword):
        names = {*parameters, *(parameter.arg for parameter in function.args.kwonlyargs)}
        return argument.arg if argument.arg in names else None
    if is_method and parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    position = call.args.index(argument)
    is_visible = not any(isinstance(value, ast.Starred) for value in call.args[: position + 1])
    return parameters[position] if is_visible and position < len(parameters) else None


def find_called_function(names: Names, call: ast.Call) -> FunctionNode | None:
    """Return the function, method or constructor of this file that a call runs; None unless only one has the name.

    The class of a method's object is not examined.
    """
    source, callee = names.source, call.func
    if isinstance(callee, ast.Attribute) and names.qualified(callee.value) is not None:
        return None  # a function of a known module
    name = last_name(callee)
    if isinstance(callee, ast.Name) and name not in source.functions_by_name and name in source.classes_by_name:
        owner: ast.AST = source.classes_by_name[name]
        functions = source.functions_by_name.get("__init__", [])
        candidates = [function for function in functions if source.parents[function] is owner]
    else:
        is_method = isinstance(callee, ast.Attribute)
        functions = source.functions_by_name.get(name, [])
        candidates = [
            function for function in functions if isinstance(source.parents[function], ast.ClassDef) == is_method
        ]
    return candidates[0] if len(candidates) == 1 else None


def find_defaults(function: Function) -> dict[str, ast.expr]:
    """Return parameter -> default, for the parameters that have one."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False),  # the last parameters have defaults
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {parameter.arg: default for parameter, default in pairs if default is not None}


def parameter_default(function: Function, name: str) -> ast.expr | None:
    """Return the default of a parameter; None if it has none."""
    return find_defaults(function).get(name)


def bind_arguments(call: ast.Call, parameters: Iterable[str]) -> dict[str, ast.expr]:
    """Return parameter -> passed value, as far as the text shows. `parameters`: names of the positional ones."""
    visible = takewhile(lambda argument: not isinstance(argument, ast.Starred), call.args)
    by_position = dict(zip(parameters, visible, strict=False))
    return by_position | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def assigned_name(site: Site, value: ast.AST) -> ast.Name | None:
    """Return `name` of the assignment `name = value`; None if the value is not assigned to one name."""
    parent = site.source.parents[value]
    target = sole_target(parent) if isinstance(parent, ast.Assign) else None
    return target if isinstance(target, ast.Name) else None


def call_with_argument(site: Site, value: ast.AST) -> ast.Call | None:
    """Return the call that gets a value as an argument; None if there is none."""
    parent = site.source.parents[value]
    call = site.source.parents[parent] if isinstance(parent, ast.keyword) else parent
    return call if isinstance(call, ast.Call) and value is not call.func else None


def bindings_of(site: Site, name: ast.Name) -> Bindings:
    """Return the bindings of a name, see `names.Bindings`; [] if there are none."""
    return site.file.names.lookup(name.id, site.file.names.scope_of(name)) or []


def find_reads(site: Site, target: ast.expr) -> Iterator[ast.expr]:
    """Yield the reads of a variable in its scope, or of an attribute in the class around it."""
    if isinstance(target, ast.Name):
        names = site.file.names
        bound = names.lookup(target.id, names.scope_of(target))
        for node in site.source.reads.get(target.id, ()):
            if names.lookup(target.id, names.scope_of(node)) is bound:
                yield node
    elif isinstance(target, ast.Attribute):
        owner = site.source.class_around(target)
        for read in site.source.attributes.get(target.attr, ()):
            is_inside = owner is not None and site.source.is_within(read, [owner])
            if is_inside and isinstance(read.ctx, ast.Load) and ast.unparse(read) == ast.unparse(target):
                yield read


def calls_to(site: Site, names: Iterable[str]) -> list[ast.Call]:
    return [call for name in names for call in site.file.index.calls.get(name, [])]


def is_called_in_project(site: Site, names: Iterable[str]) -> bool:
    """Return True if a file of the project calls one of these functions."""
    calls, calling_files = site.file.index.calls, site.file.project.files_calling
    return any(name in calls or name in calling_files for name in names)


def contains_call(site: Site, node: ast.AST, functions: Container[str]) -> bool:
    """Return True if the code of a node calls one of these functions."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(site.qualified_name(call.func) in functions for call in calls)


def is_within_call(site: Site, node: ast.AST, functions: Container[str]) -> bool:
    """Return True if a call of one of these functions contains a node."""
    calls = (parent for parent in site.source.ancestors(node) if isinstance(parent, ast.Call))
    return any(site.qualified_name(call.func) in functions for call in calls)


def mark_once(site: Site, *key: object) -> bool:
    """Mark `key` as handled in the present text; return False if it was marked already."""
    if key in site.file.handled:
        return False
    site.file.handled[key] = None
    return True


def is_reported(site: Site) -> bool:
    """Return True if a line of the site's node has a finding other than advice."""
    lines = site.file.original_lines[site.node.lineno - 1 : site.node.end_lineno]
    return any(finding.line in lines and finding.status != "advice" for finding in site.file.findings)
