"""Tests that tell a tensor's attribute `is_cuda` from a field of the project with the same name.

`site` is the expression `x.is_cuda`.
"""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, can_run_together
from viaduct.migration.lookups import last_name, plain_name
from viaduct.migration.rule import Site, cache_per_file
from viaduct.migration.source import Source

SETTINGS_NAMES = {"args", "arg", "opt", "opts", "options", "cfg", "config", "settings", "flags", "hparams", "params"}


def may_be_tensor_attribute(site: Site) -> bool:
    """Return True for an `is_cuda` that is read and is not known to be a field of the project."""
    return site.node.attr == "is_cuda" and isinstance(site.node.ctx, ast.Load) and not is_own_field(site)


def report_if_ambiguous(site: Site) -> bool:
    """Report an `is_cuda` that may be a tensor's attribute or the project's field; return True if it is reported."""
    if site.values.kind(site.node.value) in ("tensor", "module") or not is_defined_in_program(site):
        return False
    new, _ = site.target.select_message(("{card.tensor_flag}", ""), ("x.device.type in accelerator.TYPES", ""))
    site.report_unresolved(
        f"this may be the field is_cuda of this program: if it is the is_cuda of a tensor, write {new}",
        zh=f"该程序自有 is_cuda 字段,此处可能是它:若判断的是张量,请改为 {new}",
    )
    return True


def is_own_field(site: Site) -> bool:
    """Return True for a field of options, or of an object of the project, if the project defines `is_cuda`."""
    receiver = site.node.value
    if plain_name(receiver) == "self":
        owner = site.source.class_around(receiver)
        return owner is not None and any(is_definition(site.source, node) for node in ast.walk(owner))
    is_candidate = is_settings(receiver) or (site.values.kind(receiver) or "").startswith(OBJECT)
    return is_candidate and is_defined_in_program(site)


@cache_per_file
def is_defined_in_program(site: Site) -> bool:
    """Return True if a file of the same program defines `is_cuda`."""
    project, path = site.file.project, site.file.path
    candidates = sorted(project.files_containing("is_cuda") - {path})
    others = [other for other in candidates if can_run_together(project, path, other)]
    sources = [site.source, *(project.parsed[other].source for other in others)]
    return any(is_definition(source, node) for source in sources if "is_cuda" in source.text for node in source.nodes)


def is_definition(source: Source, node: ast.AST) -> bool:
    """Return True for an assigned attribute, a method or field of a class, and a command line option `is_cuda`."""
    match node:
        case ast.Attribute(attr="is_cuda", ctx=ast.Store()):
            return True
        case ast.FunctionDef(name="is_cuda") | ast.Name(id="is_cuda", ctx=ast.Store()):
            parents = (source.parents[node], source.parents[source.statement_around(node)])
            return any(isinstance(parent, ast.ClassDef) for parent in parents)
        case ast.Constant(value="--is_cuda" | "--is-cuda"):
            return True
    return False


def is_settings(node: ast.expr) -> bool:
    """Return True for the object in `args.is_cuda` and in `parser.parse_args().is_cuda`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr.startswith("parse_")
    return last_name(node).lower() in SETTINGS_NAMES
