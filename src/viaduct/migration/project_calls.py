"""Functions, methods and classes of a project: which of them a call may run, and the values that it passes.

Names are qualified: `module.function`, `module.Class.method`, and `module.Class` also for a nested class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration import lookups
from viaduct.migration.classes import find_class
from viaduct.migration.graphs import find_reachable, link_both_ways
from viaduct.migration.names import Names, Scope
from viaduct.migration.predicates import is_self, is_super
from viaduct.migration.project import Project
from viaduct.migration.source import FunctionNode

METHOD_KINDS = ("staticmethod", "classmethod")
"""Decorators of methods without `self` as first argument."""


class ProjectCalls:
    """Functions and classes of a project's files, and what calls of them run and pass."""

    def __init__(self, project: Project, files: dict[str, Names]) -> None:
        self.project = project
        self.functions: dict[str, tuple[Names, FunctionNode]] = {}  # qualified name -> file's names, definition
        self.methods: dict[str, list[str]] = {}  # bare name -> qualified names
        # Qualified name -> (file's names, scope) of each definition; several branches of an `if` may define a class.
        self.classes: dict[str, list[tuple[Names, Scope]]] = {}
        for names in files.values():
            self.record_functions(names, names.source.tree, names.module)
            for node in names.source.nodes_of_type(ast.ClassDef):
                self.classes.setdefault(f"{names.module}.{node.name}", []).append((names, names.scopes[node]))
                if isinstance(names.source.parents[node], ast.Module):
                    self.record_functions(names, node, f"{names.module}.{node.name}")
        self.bases_and_subclasses = link_both_ways({name: {*self.find_bases(name)} for name in self.classes})
        self.families: dict[str, set[str]] = {}  # cache of `find_family`

    def record_functions(self, names: Names, owner: ast.Module | ast.ClassDef, prefix: str) -> None:
        """Record the functions of a module or a class that are defined once and outside of branches."""
        for node in owner.body:
            if isinstance(node, FunctionNode) and len(names.scopes[owner].bindings.get(node.name, ())) == 1:
                self.functions[f"{prefix}.{node.name}"] = (names, node)
                if isinstance(owner, ast.ClassDef):
                    self.methods.setdefault(node.name, []).append(f"{prefix}.{node.name}")

    def find_bases(self, name: str) -> Iterator[str]:
        """Yield the qualified names of a class's bases that the project may define."""
        for names, scope in self.classes[name]:
            for base in scope.node.bases if isinstance(scope.node, ast.ClassDef) else ():
                full = names.qualified(base) or f"{names.module}.{ast.unparse(base)}"
                base_name = find_class(self.project, full) or full
                if base_name in self.classes or (
                    names.qualified(base) and full.partition(".")[0] in self.project.own_module_names
                ):
                    yield base_name

    def find_family(self, name: str) -> set[str]:
        """Return a class and all classes of the project that it inherits from or that inherit from it, transitively."""
        if name not in self.families:
            members = {name} | (find_reachable(name, self.bases_and_subclasses) & self.classes.keys())
            self.families |= dict.fromkeys(members, members)
        return self.families[name]

    def find_function(self, names: Names, node: ast.AST) -> str | None:
        """Return the qualified name of a function, given its definition; None if `functions` does not have it."""
        if not isinstance(node, FunctionNode):
            return None
        name = function_name(names, node)
        return name if name is not None and name in self.functions else None

    def find_callees(self, names: Names, call: ast.Call) -> list[str]:
        """Return the functions or methods that a call may run; several if the object's class is not known."""
        name = names.qualified(call.func)
        if name is not None:
            return [function for function in (name, f"{name}.__init__") if function in self.functions][:1]
        if not isinstance(call.func, ast.Attribute):
            return []
        receiver, method = call.func.value, call.func.attr
        owner = names.source.class_around(call)
        candidates = self.methods.get(method, [])
        if is_self(receiver) and owner:
            relatives = self.find_family(f"{names.module}.{owner.name}")
            return [function for function in candidates if function.rpartition(".")[0] in relatives] or candidates
        if is_super(receiver) and owner:
            bases = [f"{names.qualified(base)}.{method}" for base in owner.bases]
            return [base for base in bases if base in self.functions]
        return candidates

    def find_passed_values(self, names: Names, call: ast.Call, function: str) -> dict[str, ast.expr | None]:
        """Return the values that a call passes, by parameter; None for a parameter that `*` or `**` may pass."""
        parameters, arguments = self.list_parameters(function), call.args
        takes_self = self.is_method(function) and self.list_decorators(function).isdisjoint(METHOD_KINDS)
        if takes_self and names.qualified(call.func) == function:
            arguments = arguments[1:]  # Class.method(self, value)
        passed: dict[str, ast.expr | None] = {}
        for index, argument in enumerate(arguments):
            if isinstance(argument, ast.Starred):
                passed |= dict.fromkeys(parameters[index:])
                break
            passed |= dict.fromkeys(parameters[index : index + 1], argument)
        passed |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in parameters}
        has_mapping = any(keyword.arg is None for keyword in call.keywords)
        return dict.fromkeys(parameters) | passed if has_mapping else passed

    def list_parameters(self, function: str) -> list[str]:
        """Return the names of a function's parameters, without `self`."""
        _, definition = self.functions[function]
        positional = lookups.positional_parameters(definition)
        if self.is_method(function) and "staticmethod" not in self.list_decorators(function):
            positional = positional[1:]  # self, or cls of a classmethod
        return positional + [parameter.arg for parameter in definition.args.kwonlyargs]

    def find_defaults(self, function: str) -> dict[str, ast.expr]:
        """Return parameter -> default of a function, for the parameters that have one."""
        return lookups.find_defaults(self.functions[function][1])

    def list_decorators(self, function: str) -> set[str]:
        return {getattr(decorator, "id", "") for decorator in self.functions[function][1].decorator_list}

    def is_method(self, function: str) -> bool:
        names, definition = self.functions[function]
        return isinstance(names.source.parents[definition], ast.ClassDef)

    def is_parameter_rebound(self, function: str, parameter: str) -> bool:
        """Return True if a function binds one of its parameters again."""
        names, definition = self.functions[function]
        return len(names.scopes[definition].bindings[parameter]) > 1


def function_name(names: Names, function: FunctionNode) -> str | None:
    """Return the qualified name of a function or method; None for one within a function, a branch or a nested class."""
    owner = names.source.parents[function]
    if isinstance(owner, ast.ClassDef) and isinstance(names.source.parents[owner], ast.Module):
        return f"{names.module}.{owner.name}.{function.name}"
    return f"{names.module}.{function.name}" if isinstance(owner, ast.Module) else None
