"""The classes of a project: their bases, their methods, and the kinds (values.py) of their attributes.

`batch.cuda()` is PyTorch's where the batch is a tensor, and the project's own where its class defines `cuda`. A rule
that renames methods asks here first.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viaduct.migration.names import Names
from viaduct.migration.predicates import is_property

if TYPE_CHECKING:
    from viaduct.migration.project import Project

OBJECT = "object:"
"""Prefix of the kind of an instance (values.py): the qualified name of its class follows."""


@dataclass(frozen=True)
class OwnClass:
    """Class that the project defines."""

    path: str  # of the file that defines it
    bases: tuple[str, ...]  # qualified names
    methods: dict[str, tuple[str, ...]] = field(default_factory=dict)  # name -> parameters without self


def note_classes(project: Project, path: str, names: Names) -> None:
    """Record the classes that a file defines at its top level."""
    for node in names.source.of_kind(ast.ClassDef):
        if names.scopes[node].outer is names.scopes[names.source.tree]:
            name = f"{names.own}.{node.name}"
            project.classes[name] = own_class(path, node, names)
            project.class_tails.setdefault(node.name, []).append(name)


def own_class(path: str, node: ast.ClassDef, names: Names) -> OwnClass:
    """Return the bases of one class, and its methods with their parameters."""
    bases = tuple(names.qualified(base) or ast.unparse(base) for base in node.bases)
    methods = {
        statement.name: tuple(argument.arg for argument in [*statement.args.posonlyargs, *statement.args.args][1:])
        for statement in node.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return OwnClass(path, bases, methods)


def class_called(project: Project, name: str) -> str | None:
    """Return the qualified name of the class that a qualified name means; None if it means none or several.

    A script imports a module of its own folder without the folder's name. So `model.Net` also means the class
    `lib.model.Net`, if no other class's qualified name ends so.
    """
    if name in project.classes:
        return name
    if "." not in name:
        return None
    longer = [known for known in project.class_tails.get(name.rpartition(".")[2], []) if known.endswith(f".{name}")]
    return longer[0] if len(longer) == 1 else None


def lineage(project: Project, name: str) -> list[str]:
    """Return the class and its direct and indirect bases, as far as the project defines them; the nearest first."""
    classes: list[str] = []
    pending = [name]
    while pending:
        current = pending.pop(0)
        if current not in classes:
            classes.append(current)
            definition = project.classes.get(class_called(project, current) or "")
            pending += definition.bases if definition else ()
    return classes


def owner_of(project: Project, name: str, method: str) -> str | None:
    """Return the class of the project that defines a method: this one or one that it derives from; else None."""
    known = (class_called(project, ancestor) for ancestor in lineage(project, name))
    return next((owner for owner in known if owner is not None and method in project.classes[owner].methods), None)


def is_module(project: Project, name: str) -> bool:
    """Return True if a class derives from a class of torch.nn, directly or not."""
    return any(owner.startswith("torch.nn.") for owner in lineage(project, name))


def attribute_of(project: Project, name: str, attribute: str) -> str | None:
    """Return the kind of an attribute of the class's objects, its own or inherited; None if it is not known."""
    owners = lineage(project, name) if project.attributes else ()
    kinds = (project.attributes.get(f"{class_called(project, owner)}.{attribute}") for owner in owners)
    return next((kind for kind in kinds if kind is not None), None)


def is_torch_object(project: Project, kind: str) -> bool:
    """Return True if a kind is an object of a class in a file that imports PyTorch."""
    known = project.classes.get(kind.removeprefix(OBJECT)) if kind.startswith(OBJECT) else None
    return known is not None and known.path in project.torch_files


def owners(project: Project, method: str, path: str = "") -> list[str]:
    """Return the classes in PyTorch files that define a method; with a path, those that `meet` that file."""
    if method not in project.owners_by_method:
        torch = project.torch_files
        names = (name for name, known in project.classes.items() if method in known.methods and known.path in torch)
        project.owners_by_method[method] = sorted(names)
    owners = project.owners_by_method[method]
    return [name for name in owners if not path or meet(project, path, project.classes[name].path)]


def meet(project: Project, path: str, other: str) -> bool:
    """Return True if two files can be in one program: one imports the other, or a third file imports both.

    Indirect imports count too.
    """
    if (path, other) not in project.known_meetings:
        importers = project.all_importers(path) & project.all_importers(other)
        project.known_meetings[path, other] = not project.surveyed.isdisjoint(importers)
    return project.known_meetings[path, other]


def note_methods(project: Project, names: Names) -> None:
    """Record the kinds of methods' results and of attributes in `project.returns` and `project.attributes`.

    Their keys are module.Class.name.
    """
    from viaduct.migration.project import returns_of
    from viaduct.migration.values import TORCH_KINDS, Values

    values = Values(names, project)
    for node in names.source.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        name = f"{names.own}.{node.name}"
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and returns_of(names, method):
                kind = values.solve(("method", node, method.name))
                if kind and kind not in TORCH_KINDS:
                    project.returns[f"{name}.{method.name}"] = kind
                    if is_property(method):
                        project.attributes[f"{name}.{method.name}"] = kind
        for attribute in {*values.assigned_in(node), *values.attribute_elements.get(node, ())}:
            kind = values.solve(("self", node, attribute))
            if kind and kind not in TORCH_KINDS:
                project.attributes[f"{name}.{attribute}"] = kind
