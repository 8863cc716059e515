"""The classes that a project defines: their bases, their methods, and the kinds of their objects' attributes.

A kind is a string such as "session" or "tensor" (values.py). Rules need them: `batch.cuda()` is PyTorch's method if
`batch` is a tensor, and the project's own method if the class of `batch` defines `cuda`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viaduct.migration.lookups import positional_parameters
from viaduct.migration.names import Names
from viaduct.migration.predicates import is_property
from viaduct.migration.reexports import find_by_ending
from viaduct.migration.source import FunctionNode

if TYPE_CHECKING:
    from viaduct.migration.project import Project

OBJECT = "object:"
"""Prefix of the kind of an instance; the qualified name of its class follows."""


@dataclass(frozen=True)
class ProjectClass:
    """Class that the project defines."""

    path: str  # the file that defines it
    bases: tuple[str, ...]  # qualified names
    methods: dict[str, tuple[str, ...]] = field(default_factory=dict)  # name -> positional parameters without the first


def record_classes(project: Project, path: str, names: Names) -> None:
    """Record the classes that a file defines outside functions and classes."""
    for node in names.source.nodes_of_type(ast.ClassDef):
        if names.scopes[node].outer is names.scopes[names.source.tree]:
            name = f"{names.module}.{node.name}"
            project.classes[name] = describe_class(path, node, names)
            project.classes_by_last_name.setdefault(node.name, []).append(name)


def describe_class(path: str, node: ast.ClassDef, names: Names) -> ProjectClass:
    bases = tuple(names.qualified(base) or ast.unparse(base) for base in node.bases)
    methods = {
        statement.name: tuple(positional_parameters(statement)[1:])
        for statement in node.body
        if isinstance(statement, FunctionNode)
    }
    return ProjectClass(path, bases, methods)


def find_class(project: Project, name: str) -> str | None:
    """Return the qualified name of the project's class that a name refers to; None if there are several or none.

    A script in `lib` imports `lib/model.py` as `model`, so `model.Net` also matches `lib.model.Net`.
    """
    if name in project.classes:
        return name
    return find_by_ending(name, project.classes_by_last_name) if "." in name else None


def list_ancestry(project: Project, name: str) -> list[str]:
    """Return the class and its direct and indirect bases, the nearest first; a library's class has no known bases."""
    classes: list[str] = []
    pending = [name]
    while pending:
        current = pending.pop(0)
        if current not in classes:
            classes.append(current)
            definition = project.classes.get(find_class(project, current) or "")
            pending += definition.bases if definition else ()
    return classes


def find_method_owner(project: Project, name: str, method: str) -> str | None:
    """Return the class that defines a method, this one or one of its bases; None if the project has none."""
    candidates = (find_class(project, ancestor) for ancestor in list_ancestry(project, name))
    return next((owner for owner in candidates if owner is not None and method in project.classes[owner].methods), None)


def is_module(project: Project, name: str) -> bool:
    """Return True if a class derives from a class of torch.nn, directly or not."""
    return any(owner.startswith("torch.nn.") for owner in list_ancestry(project, name))


def find_attribute_kind(project: Project, name: str, attribute: str) -> str | None:
    """Return the kind of an attribute of the class's objects, also an inherited one; None if it is not known."""
    owners = list_ancestry(project, name) if project.attribute_kinds else ()
    kinds = (project.attribute_kinds.get(f"{find_class(project, owner)}.{attribute}") for owner in owners)
    return next((kind for kind in kinds if kind is not None), None)


def is_torch_object(project: Project, kind: str) -> bool:
    """Return True if a kind is an object of a class in a PyTorch file (`Project.torch_files`)."""
    definition = project.classes.get(kind.removeprefix(OBJECT)) if kind.startswith(OBJECT) else None
    return definition is not None and definition.path in project.torch_files


def find_classes_defining(project: Project, method: str, path: str = "") -> list[str]:
    """Return the classes in PyTorch files that define a method; with a path, those that can run with this file."""
    if method not in project.owners_by_method:
        project.owners_by_method[method] = sorted(
            name
            for name, definition in project.classes.items()
            if method in definition.methods and definition.path in project.torch_files
        )
    owners = project.owners_by_method[method]
    return [name for name in owners if not path or can_run_together(project, path, project.classes[name].path)]


def can_run_together(project: Project, path: str, other_path: str) -> bool:
    """Return True if two files can be in one program: a third imports both, or one the other, also indirectly."""
    if (path, other_path) not in project.run_together_cache:
        importers = project.all_importers(path) & project.all_importers(other_path)
        project.run_together_cache[path, other_path] = not project.surveyed.isdisjoint(importers)
    return project.run_together_cache[path, other_path]


def record_methods(project: Project, names: Names) -> None:
    """Record the kinds of methods' results in `result_kinds` and of attributes in `attribute_kinds` of the project.

    Those of TORCH_KINDS are not recorded.
    """
    from viaduct.migration.project import returns_of
    from viaduct.migration.values import TORCH_KINDS, Values

    values = Values(names, project)
    for node in names.source.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        name = f"{names.module}.{node.name}"
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and returns_of(names, method):
                kind = values.solve(("method", node, method.name))
                if kind and kind not in TORCH_KINDS:
                    project.result_kinds[f"{name}.{method.name}"] = kind
                    if is_property(method):
                        project.attribute_kinds[f"{name}.{method.name}"] = kind
        for attribute in {*values.assigned_in(node), *values.attribute_elements.get(node, ())}:
            kind = values.solve(("self", node, attribute))
            if kind and kind not in TORCH_KINDS:
                project.attribute_kinds[f"{name}.{attribute}"] = kind
