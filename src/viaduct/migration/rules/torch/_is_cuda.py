"""Test whether an attribute `is_cuda` is a tensor's or a field of the project's own."""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, meet
from viaduct.migration.lookups import enclosing_class, last_name, mark_once, plain_name
from viaduct.migration.rule import Site
from viaduct.migration.source import Source

SETTINGS_NAMES = {
    "args",
    "arg",
    "opt",
    "opts",
    "options",
    "cfg",
    "config",
    "settings",
    "flags",
    "FLAGS",
    "hparams",
    "params",
}


def is_tensor_attribute(site: Site, instead: str) -> bool:
    """Return True for a tensor's `is_cuda`; report one that may be a field of the project's own.

    `instead` is the code to write for a tensor, for the message.
    """
    if site.node.attr != "is_cuda" or not isinstance(site.node.ctx, ast.Load) or is_own_field(site):
        return False
    if site.values.kind(site.node.value) in ("tensor", "module") or not is_defined_in_program(site):
        return True
    site.report_unresolved(
        f"this program defines a field is_cuda, and this may be it: if it is the is_cuda of a tensor, write {instead}",
        zh=f"该程序自有 is_cuda 字段,此处可能是它:若判断的是张量,请改为 {instead}",
    )
    return False


def is_own_field(site: Site) -> bool:
    """Return True for `self.is_cuda` in a class that defines it, and for a field of such an object or of options."""
    receiver = site.node.value
    if plain_name(receiver) == "self":
        owner = enclosing_class(site, receiver)
        return owner is not None and any(is_definition(site.source, node) for node in ast.walk(owner))
    return (is_settings(receiver) or (site.values.kind(receiver) or "").startswith(OBJECT)) and is_defined_in_program(
        site
    )


def is_defined_in_program(site: Site) -> bool:
    """Return True if a file of the same program has an `is_cuda` of its own; looked for once in a text."""
    if mark_once(site, "is_cuda", "looked for"):
        project, path = site.work.project, site.work.path
        others = [
            other for other in sorted(project.files_with("is_cuda")) if other != path and meet(project, path, other)
        ]
        sources = [site.source, *(project.parsed[other].source for other in others)]
        if any(is_definition(source, node) for source in sources if "is_cuda" in source.text for node in source.nodes):
            mark_once(site, "is_cuda", "defined")
    return ("is_cuda", "defined") in site.work.seen


def is_definition(source: Source, node: ast.AST) -> bool:
    """Return True for a field that is assigned, a method or field of a class, an option; not for a mere variable."""
    match node:
        case ast.Attribute(attr="is_cuda", ctx=ast.Store()):
            return True
        case ast.FunctionDef(name="is_cuda") | ast.Name(id="is_cuda", ctx=ast.Store()):
            around = (source.parents[node], source.parents[source.statement(node)])
            return any(isinstance(parent, ast.ClassDef) for parent in around)
        case ast.Constant(value="--is_cuda" | "--is-cuda"):
            return True
    return False


def is_settings(node: ast.expr) -> bool:
    """Return True for the object in `args.is_cuda` and in `parser.parse_args().is_cuda`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr.startswith("parse_")
    return last_name(node) in SETTINGS_NAMES
