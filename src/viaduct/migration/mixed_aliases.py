"""Find and drop mixed aliases: attributes, parameters and results that may be Horovod's module or another value.

With `self.comm = hvd` in one branch and `self.comm = fake` in another, `self.comm.rank()` may be a function of Horovod
or not. A false constant (None, False, 0) does not make an alias mixed, because no method is called on it. The keys of
aliases are those of module_flow.py: `.attribute`, `module.Class.attribute`, `module.function(parameter)` and
`module.function()` for a result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viaduct.migration.lookups import last_name, literal_text
from viaduct.migration.names import Names
from viaduct.migration.predicates import is_self, is_super
from viaduct.migration.project import returns_of
from viaduct.migration.source import Source

if TYPE_CHECKING:
    from viaduct.migration.module_flow import ModuleFlow

Value = str | ast.expr | None
"""A value that is assigned or passed: its qualified name, its expression, or None if it is not known."""
TYPE_TESTS = ("isinstance", "issubclass", "super")
"""Built-in functions that do not call a function or class in their arguments."""
PASSING_NODES = (ast.Dict, ast.List, ast.Set, ast.keyword, ast.Return, ast.IfExp, ast.BoolOp, ast.Starred)
"""Nodes that pass on the value of a child: containers, keyword arguments, results, conditions."""


def is_parameter_key(key: str) -> bool:
    """Return True for `module.function(parameter)`, not for a result, `module.function()`."""
    return key.endswith(")") and not key.endswith("()")


def drop_mixed_aliases(flow: ModuleFlow) -> set[str]:
    """Drop mixed aliases; return their keys. An alias that got its value from a dropped one becomes mixed itself."""
    dropped: set[str] = set()
    while mixed := find_mixed_aliases(flow):
        for key in mixed:
            del flow.project.horovod_aliases[key]
        dropped |= mixed
        for names in flow.files.values():
            names.resolved.clear()
    return dropped


def find_mixed_aliases(flow: ModuleFlow) -> set[str]:
    keys = {*find_mixed_attributes(flow), *find_mixed_parameters(flow), *find_mixed_results(flow)}
    return keys & flow.project.horovod_aliases.keys()


def find_mixed_attributes(flow: ModuleFlow) -> Iterator[str]:
    """Yield the keys of attributes that are assigned other values too."""
    attributes = {key[1:] for key in flow.project.horovod_aliases if key.startswith(".")}
    if not attributes:
        return
    pattern = re.compile("|".join(rf"\b{re.escape(attribute_name)}\b" for attribute_name in sorted(attributes)))
    files = [names for names in flow.files.values() if pattern.search(names.source.text)]
    for names in [*files, *flow.parse_plain_files(pattern)]:
        for owner, attribute, value in find_assignments(flow, names, attributes):
            if attribute in {*attributes, ""} and not is_module_or_false(flow, names, value):
                assigned = [attribute] if attribute else sorted(attributes)
                yield from (f".{name}" for name in assigned)
                # If the class of the object is not known, the attribute may be that of any class.
                owners = flow.calls.find_family(owner) if owner else flow.calls.classes if attribute else ()
                yield from (f"{relative}.{name}" for relative in owners for name in assigned)


def find_assignments(flow: ModuleFlow, names: Names, attributes: set[str]) -> Iterator[tuple[str, str, Value]]:
    """Yield (class or "", attribute, value) of assignments; the attribute is "" for a computed name."""
    for attribute in sorted(attributes):
        for target in names.source.attributes.get(attribute, ()):
            if isinstance(target.ctx, ast.Store) and not is_declaration(names.source, target):
                yield find_owner(names, target.value), attribute, find_stored_value(names.source, target)
    for node in names.source.nodes_of_type(ast.ClassDef):
        bound = names.scopes[node].bindings
        for attribute in sorted(attributes & bound.keys()):
            yield from ((f"{names.module}.{node.name}", attribute, value) for value in bound[attribute])
    for item in names.source.nodes_of_type(ast.Subscript):
        if isinstance(item.ctx, ast.Store) and isinstance(item.value, ast.Attribute) and item.value.attr == "__dict__":
            yield find_owner(names, item.value.value), literal_text(item.slice), find_stored_value(names.source, item)
    for call in names.source.nodes_of_type(ast.Call):
        yield from find_assignments_by_call(flow, names, call, attributes)


def find_assignments_by_call(
    flow: ModuleFlow, names: Names, call: ast.Call, attributes: set[str]
) -> Iterator[tuple[str, str, Value]]:
    """Yield the assignments by `setattr`, `__dict__.update` and `Namespace(comm=value)`, as `find_assignments` does."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    function_name = last_name(call.func)
    if function_name in ("setattr", "__setattr__") and len(call.args) > 1:
        receiver = call.args[0] if len(call.args) > 2 or receiver is None else receiver  # object.__setattr__(self, …)
        yield find_owner(names, receiver), literal_text(call.args[-2]), call.args[-1]
    elif (
        function_name == "update" and isinstance(receiver, ast.Attribute) and receiver.attr == "__dict__" and call.args
    ):
        yield find_owner(names, receiver.value), "", None
    keywords = [keyword for keyword in call.keywords if keyword.arg in attributes]
    callees = flow.calls.find_callees(names, call) if keywords else []
    parameters = {parameter for callee in callees for parameter in flow.calls.list_parameters(callee)}
    for keyword in keywords:
        if keyword.arg is not None and keyword.arg not in parameters and not isinstance(keyword.value, ast.Constant):
            yield "", keyword.arg, keyword.value


def find_owner(names: Names, receiver: ast.AST) -> str:
    """Return the class of `self` or `super()`; "" for any other object."""
    owner = names.source.class_around(receiver) if is_super(receiver) or is_self(receiver) else None
    return f"{names.module}.{owner.name}" if owner is not None else ""


def is_declaration(source: Source, target: ast.Attribute) -> bool:
    """Return True for `self.comm: Module` without a value."""
    parent = source.parents[target]
    return isinstance(parent, ast.AnnAssign) and parent.value is None


def find_stored_value(source: Source, target: ast.expr) -> ast.expr | None:
    """Return the value assigned to a target; None for loops, `with`, tuples and augmented assignments."""
    parent = source.parents[target]
    return parent.value if isinstance(parent, ast.Assign | ast.AnnAssign) else None


def is_module_or_false(flow: ModuleFlow, names: Names, value: Value) -> bool:
    """Return True if a value is certainly Horovod's module, or a false constant."""
    return (isinstance(value, ast.Constant) and not value.value) or flow.is_module(names, value)


def find_mixed_parameters(flow: ModuleFlow) -> Iterator[str]:
    """Yield the keys of parameters that get other values, or whose function is passed as a value."""
    keys = [key for key in flow.project.horovod_aliases if is_parameter_key(key)]
    functions = {key.partition("(")[0] for key in keys}
    if not functions:
        return
    for function in functions:
        names = flow.calls.functions[function][0]
        passed: dict[str, ast.expr | None] = {**flow.calls.find_defaults(function)}
        yield from find_other_arguments(flow, names, function, passed)
    call_names = {find_call_name(function) for function in functions}
    pattern = re.compile("|".join(rf"\b{re.escape(call_name)}\b" for call_name in sorted(call_names)))
    for names in flow.files.values():
        if not pattern.search(names.source.text):
            continue
        for call in names.source.nodes_of_type(ast.Call):
            for function in functions.intersection(flow.calls.find_callees(names, call)):
                yield from find_other_arguments(
                    flow, names, function, flow.calls.find_passed_values(names, call, function)
                )
        passed_functions = {
            function for call_name in call_names for function in find_passed_functions(names, call_name)
        }
        yield from (key for key in keys if key.partition("(")[0].removesuffix(".__init__") in passed_functions)


def find_other_arguments(
    flow: ModuleFlow, names: Names, function: str, passed: dict[str, ast.expr | None]
) -> Iterator[str]:
    """Yield the keys of parameters that get a value other than the module or a false constant."""
    for parameter, value in passed.items():
        if not is_module_or_false(flow, names, value):
            yield f"{function}({parameter})"


def find_passed_functions(names: Names, name: str) -> Iterator[str]:
    """Yield the qualified names of functions and classes called `name` that a file passes as values to other code."""
    for node in [*names.source.reads.get(name, ()), *names.source.attributes.get(name, ())]:
        if is_passed_as_value(names.source, node):
            yield qualify_function(names, node)


def qualify_function(names: Names, node: ast.AST) -> str:
    """Return the qualified name of a function, class or own method that is passed as a value; "" if not known."""
    owner = names.source.class_around(node)
    if isinstance(node, ast.Attribute) and is_self(node.value) and owner is not None:
        return f"{names.module}.{owner.name}.{node.attr}"
    return names.qualified(node) or ""


def is_passed_as_value(source: Source, node: ast.AST) -> bool:
    """Return True for a node that is passed as an argument, returned, put into a container or chosen by a condition."""
    child, parent = node, source.parents[node]
    while isinstance(parent, ast.Tuple):
        child, parent = parent, source.parents[parent]
    if isinstance(parent, ast.Call):
        return parent.func is not child and getattr(parent.func, "id", "") not in TYPE_TESTS
    return isinstance(parent, PASSING_NODES)


def find_call_name(function: str) -> str:
    """Return the name by which a function is called; for `__init__` the name of the class."""
    parts = function.split(".")
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]


def find_mixed_results(flow: ModuleFlow) -> Iterator[str]:
    """Yield the keys of results of functions that, in their class or a related one, return other values too."""
    for key in flow.project.horovod_aliases:
        function = key.removesuffix("()")
        if function != key and not returns_module(flow, function):
            yield key


def returns_module(flow: ModuleFlow, function: str) -> bool:
    """Return True if a function, and its redefinitions in related classes, return only the module or a false value."""
    owner, _, name = function.rpartition(".")
    candidates = [function]
    if owner in flow.calls.classes:
        candidates = [f"{relative}.{name}" for relative in flow.calls.find_family(owner)]
    for candidate in candidates:
        names, definition = flow.calls.functions.get(candidate, (None, None))
        if names is None or definition is None:
            bodies = flow.calls.classes.get(candidate.rpartition(".")[0], ())
            if any(name in scope.bindings for _, scope in bodies):
                return False  # defined in branches, or not a function
            continue
        values = [statement.value for statement in returns_of(names, definition)]
        if not all(value is None or is_module_or_false(flow, names, value) for value in values):
            return False
    return True
