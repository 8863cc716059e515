"""Test whether a tensor serves as an index, in a function or in those of the project that it is passed to.

PyTorch's indexing, gather, one_hot and embedding take int64; what goes there must not be cast to int32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.classes import OBJECT, owner_of
from viaduct.migration.names import Names
from viaduct.migration.project import Project
from viaduct.migration.values import Values, starts_with_name

INDEXED = {
    *("gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "one_hot", "embedding", "index_select"),
    *("index_add", "index_add_", "index_copy_", "index_fill_", "take", "take_along_dim"),
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Place:
    """A function, or a whole file, and what is known of its names."""

    home: ast.AST
    values: Values

    @property
    def names(self) -> Names:
        """Names of the file."""
        return self.values.names

    @property
    def project(self) -> Project:
        """Project that the file belongs to."""
        return self.values.project


def is_index(place: Place, name: str, depth: int = 0) -> bool:
    """Return True if a tensor is used as an index, also under another name (`at = target.view(-1, 1)`) or elsewhere.

    Functions of the project that it is passed to are followed, four calls deep.
    """
    if depth > 4:
        return False
    called = aliases(place.home, name)
    if any(mentions(value, called) for node in ast.walk(place.home) for value in indices(node)):
        return True
    return any(is_index(other, parameter, depth + 1) for other, parameter in handed_on(place, called))


def aliases(home: ast.AST, name: str) -> set[str]:
    """Return a name and those that are assigned from an expression that begins with it."""
    found = {name}
    for node in ast.walk(home):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and starts_with_name(node.value, name)
        ):
            found.add(node.targets[0].id)
    return found


def indices(node: ast.AST) -> list[ast.expr]:
    """Return the expressions in a subscript, or all arguments of an indexing function."""
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in INDEXED:
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    return []


def mentions(value: ast.AST, names: set[str]) -> bool:
    """Return True if a value uses one of the names outside a comparison, whose result is true or false."""
    if isinstance(value, ast.Compare):
        return False
    if isinstance(value, ast.Name):
        return value.id in names
    return any(mentions(child, names) for child in ast.iter_child_nodes(value))


def handed_on(place: Place, names: set[str]) -> Iterator[tuple[Place, str]]:
    """Yield the functions of the project that are given the tensor, each with the parameter that it becomes."""
    for call in ast.walk(place.home):
        if not isinstance(call, ast.Call) or not any(mentions(argument, names) for argument in arguments(call)):
            continue
        found = definition(place, call)
        if found is None:
            continue
        other, parameters = found
        given: dict[str, ast.expr] = dict(zip(parameters, call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        yield from ((other, parameter) for parameter, value in given.items() if mentions(value, names))


def arguments(call: ast.Call) -> list[ast.expr]:
    """Return all arguments of a call, positional ones first."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def definition(place: Place, call: ast.Call) -> tuple[Place, list[str]] | None:
    """Return what is called, if the project defines it: a function, a method, or the forward of a module."""
    name = place.names.qualified(call.func)
    if name in place.project.functions:
        path, function = place.project.functions[name]
        return there(place, path, function), [parameter.arg for parameter in function.args.args]
    kind = place.values.kind(call.func) or ""
    if kind.startswith(OBJECT):
        return method(place, kind.removeprefix(OBJECT), "forward")
    if isinstance(call.func, ast.Attribute):
        kind = place.values.kind(call.func.value) or ""
        return method(place, kind.removeprefix(OBJECT), call.func.attr) if kind.startswith(OBJECT) else None
    return None


def method(place: Place, kind: str, name: str) -> tuple[Place, list[str]] | None:
    """Return the definition of a method of the project's class, and its parameters."""
    owner = owner_of(place.project, kind, name)
    known = place.project.classes[owner] if owner else None
    if owner is None or known is None:
        return None
    nodes = place.project.parsed[known.path].source.nodes
    holders = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == owner.rpartition(".")[2]]
    functions = [
        statement
        for holder in holders
        for statement in holder.body
        if isinstance(statement, Definition) and statement.name == name
    ]
    if not functions:
        return None
    return there(place, known.path, functions[0]), list(known.methods[name])


def there(place: Place, path: str, function: ast.AST) -> Place:
    """Return a place in another file of the project."""
    return Place(function, Values(place.project.parsed[path], place.project))
