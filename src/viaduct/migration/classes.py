"""The classes of a project: what they derive from, which methods are their own, what their attributes hold.

`batch.cuda()` is PyTorch's where the batch is a tensor, and the project's own where its class defines `cuda`. A rule
that renames methods asks here first.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viaduct.migration.names import Names

if TYPE_CHECKING:
    from viaduct.migration.project import Project

OBJECT = "object:"
"""The kind of an instance: followed by the qualified name of its class."""


@dataclass(frozen=True)
class OwnClass:
    """Class of the project. `bases`: qualified names; `methods`: name -> parameters without self."""

    path: str
    bases: tuple[str, ...]
    methods: dict[str, tuple[str, ...]] = field(default_factory=dict)


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
    """Return the qualified name of the project's class that a name means; None if there is none.

    Scripts also import a neighbour by its bare name, so it suffices that one class's qualified name ends so.
    """
    if name in project.classes:
        return name
    if "." not in name:
        return None
    found = [known for known in project.class_tails.get(name.rpartition(".")[2], []) if known.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None


def lineage(project: Project, name: str) -> list[str]:
    """Return the class and all classes that it derives from, as far as the project shows; the nearest first."""
    found: list[str] = []
    pending = [name]
    while pending:
        item = pending.pop(0)
        if item not in found:
            found.append(item)
            own = project.classes.get(class_called(project, item) or "")
            pending += own.bases if own else ()
    return found


def owner_of(project: Project, name: str, method: str) -> str | None:
    """Return the class of the project that defines a method: this one or one that it derives from; else None."""
    for owner in lineage(project, name):
        known = class_called(project, owner)
        if known is not None and method in project.classes[known].methods:
            return known
    return None


def is_module(project: Project, name: str) -> bool:
    """Return True if a class derives from anything in torch.nn."""
    return any(owner.startswith("torch.nn.") for owner in lineage(project, name))


def attribute_of(project: Project, name: str, attribute: str) -> str | None:
    """Return the kind of an attribute of the class's objects, its own or inherited; None if it is not known."""
    for owner in lineage(project, name) if project.attributes else ():
        found = project.attributes.get(f"{class_called(project, owner)}.{attribute}")
        if found is not None:
            return found
    return None


def is_torch_object(project: Project, kind: str) -> bool:
    """Return True if a kind is an object of a class in a file that imports PyTorch."""
    known = project.classes.get(kind.removeprefix(OBJECT)) if kind.startswith(OBJECT) else None
    return known is not None and known.path in project.torch_files


def owners(project: Project, method: str, path: str = "") -> list[str]:
    """Return the classes in PyTorch files that define a method; with a path, those of programs with that file."""
    if method not in project.owning:
        torch = project.torch_files
        found = (name for name, known in project.classes.items() if method in known.methods and known.path in torch)
        project.owning[method] = sorted(found)
    return [name for name in project.owning[method] if not path or meet(project, path, project.classes[name].path)]


def meet(project: Project, path: str, other: str) -> bool:
    """Return True if two files can be in one program: one imports the other, or a third file imports both.

    Indirect imports count too.
    """
    if (path, other) not in project.met:
        above = project.all_importers(path) & project.all_importers(other)
        project.met[path, other] = not project.surveyed.isdisjoint(above)
    return project.met[path, other]


def note_methods(project: Project, names: Names) -> None:
    """Record what methods return and attributes hold, under `module.Class.name` in project.returns and .attributes."""
    from viaduct.migration.project import returns_of
    from viaduct.migration.values import OF_TORCH, Values

    values = Values(names, project)
    for node in names.source.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        name = f"{names.own}.{node.name}"
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and returns_of(names, method):
                found = values.solve(("method", node, method.name))
                if found and found not in OF_TORCH:
                    project.returns[f"{name}.{method.name}"] = found
                    if values.is_property(method):
                        project.attributes[f"{name}.{method.name}"] = found
        for attribute in {*values.assigned_in(node), *values.attribute_elements.get(node, ())}:
            found = values.solve(("self", node, attribute))
            if found and found not in OF_TORCH:
                project.attributes[f"{name}.{attribute}"] = found
