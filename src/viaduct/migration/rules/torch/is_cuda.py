"""Ask a tensor whether it is on the card.

     import torch
    +import torch_npu
     def place(x):
    -    return x.is_cuda
    +    return x.is_npu

Both plug-ins give tensors and storages such a property. A field of that name that the project itself defines or assigns
(`self.is_cuda = …`, `args.is_cuda` of an option) is somebody's own and stays; where both could be meant, the place is
listed as unresolved.
"""

from __future__ import annotations

import ast

from viaduct.migration.classes import OBJECT, meet
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._chains import dotted, swap
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.source import Source

rule = Rule(__name__, spec="P10 6", kind="mandatory", targets=("npu", "mlu"), order=40)

SETTINGS = {"args", "arg", "opt", "opts", "options", "cfg", "config", "settings", "flags", "FLAGS", "hparams", "params"}


@rule.node(ast.Attribute, words=("is_cuda",))
def ask(site: Site) -> None:
    target = card(site.options)
    if not is_tensors(site, target.is_attr):
        return
    written = dotted(site.node)
    if not site.source.in_f_string(site.node):
        end = site.source.span(site.node)[1]
        site.edit.replace(end - len("is_cuda"), end, target.is_attr)
    elif written is None or not swap(site, site.node, written, written.replace(".is_cuda", f".{target.is_attr}")):
        site.manual(f"write {target.is_attr} for is_cuda", zh=f"请把 is_cuda 改为 {target.is_attr}")
        return
    site.changed(f"is_cuda becomes {target.is_attr}", zh=f"is_cuda 替换为 {target.is_attr}")


def is_tensors(site: Site, instead: str) -> bool:
    """Return True for a question to a tensor; where it may as well be a field of the project's own, say so."""
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
        owner = next((one for one in site.source.ancestors(receiver) if isinstance(one, ast.ClassDef)), None)
        return owner is not None and any(is_definition(site.source, node) for node in ast.walk(owner))
    if (site.values.kind(receiver) or "").startswith(OBJECT) or is_settings(receiver):
        return is_defined_near(site)
    return False


def is_settings(node: ast.expr) -> bool:
    """`args.is_cuda`, `parser.parse_args().is_cuda`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr.startswith("parse_")
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return last in SETTINGS


def is_defined_near(site: Site) -> bool:
    """Return True if a file of the same program has an `is_cuda` of its own."""
    if ("is_cuda", "owned") not in site.work.seen and ("is_cuda", "free") not in site.work.seen:
        project, here = site.work.project, site.work.path
        near = [path for path in sorted(project.files_with("is_cuda")) if path != here and meet(project, here, path)]
        sources = [site.source, *(project.parsed[path].source for path in near)]
        site.work.seen["is_cuda", "owned" if any(map(defines, sources)) else "free"] = None
    return ("is_cuda", "owned") in site.work.seen


def defines(source: Source) -> bool:
    return "is_cuda" in source.text and any(is_definition(source, node) for node in source.nodes)


def is_definition(source: Source, node: ast.AST) -> bool:
    """A field that is assigned, a method or a field of a class, an option; a mere variable is none."""
    match node:
        case ast.Attribute(attr="is_cuda", ctx=ast.Store()):
            return True
        case ast.FunctionDef(name="is_cuda") | ast.Name(id="is_cuda", ctx=ast.Store()):
            return any(
                isinstance(one, ast.ClassDef) for one in (source.parents[node], source.parents[source.statement(node)])
            )
        case ast.Constant(value="--is_cuda" | "--is-cuda"):
            return True
    return False
