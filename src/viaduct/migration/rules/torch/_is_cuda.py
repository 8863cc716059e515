"""Test whether an attribute `is_cuda` is a tensor's or a field of the project's own."""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, meet
from viaduct.migration.rule import Site
from viaduct.migration.source import Source

SETTINGS = {"args", "arg", "opt", "opts", "options", "cfg", "config", "settings", "flags", "FLAGS", "hparams", "params"}


def is_tensors(site: Site, instead: str) -> bool:
    """Return True for a tensor's `is_cuda`; report one that may be a field of the project's own."""
    if site.node.attr != "is_cuda" or not isinstance(site.node.ctx, ast.Load) or is_own_field(site):
        return False
    if site.values.kind(site.node.value) in ("tensor", "module") or not is_defined_near(site):
        return True
    site.unresolved(
        f"this program has an is_cuda of its own, and this may be it: if a tensor is asked, write {instead}",
        zh=f"该程序自有 is_cuda 字段,此处可能是它:若判断的是张量,请改为 {instead}",
    )
    return False


def is_own_field(site: Site) -> bool:
    """`self.is_cuda` in a class that has one, an object of such a class, an option of the command line."""
    receiver = site.node.value
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        owner = next((parent for parent in site.source.ancestors(receiver) if isinstance(parent, ast.ClassDef)), None)
        return owner is not None and any(is_definition(site.source, node) for node in ast.walk(owner))
    if (site.values.kind(receiver) or "").startswith(OBJECT) or is_settings(receiver):
        return is_defined_near(site)
    return False


def is_defined_near(site: Site) -> bool:
    """Return True if a file of the same program has an `is_cuda` of its own."""
    if ("is_cuda", "owned") not in site.work.seen and ("is_cuda", "free") not in site.work.seen:
        project, here = site.work.project, site.work.path
        near = [path for path in sorted(project.files_with("is_cuda")) if path != here and meet(project, here, path)]
        sources = [site.source, *(project.parsed[path].source for path in near)]
        site.work.seen["is_cuda", "owned" if any(map(defines, sources)) else "free"] = None
    return ("is_cuda", "owned") in site.work.seen


def is_definition(source: Source, node: ast.AST) -> bool:
    """A field that is assigned, a method or a field of a class, an option; a mere variable is none."""
    match node:
        case ast.Attribute(attr="is_cuda", ctx=ast.Store()):
            return True
        case ast.FunctionDef(name="is_cuda") | ast.Name(id="is_cuda", ctx=ast.Store()):
            return any(
                isinstance(item, ast.ClassDef)
                for item in (source.parents[node], source.parents[source.statement(node)])
            )
        case ast.Constant(value="--is_cuda" | "--is-cuda"):
            return True
    return False


def is_settings(node: ast.expr) -> bool:
    """`args.is_cuda`, `parser.parse_args().is_cuda`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr.startswith("parse_")
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return last in SETTINGS


def defines(source: Source) -> bool:
    """Return True if a file defines or assigns an `is_cuda` of its own."""
    return "is_cuda" in source.text and any(is_definition(source, node) for node in source.nodes)
