"""Ask a tensor whether it is on the card.

     import torch
    +import torch_npu
     def place(x):
    -    return x.is_cuda
    +    return x.is_npu

Both plug-ins give tensors and storages such a property. A field of that name that the project itself defines or assigns
(`self.is_cuda = …`, `args.is_cuda` of an option) is somebody's own and stays.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._chains import dotted, swap
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.source import Source

rule = Rule(__name__, spec="P10 6", kind="mandatory", targets=("npu", "mlu"), order=40)


@rule.node(ast.Attribute, words=("is_cuda",))
def ask(site: Site) -> None:
    if site.node.attr != "is_cuda" or not isinstance(site.node.ctx, ast.Load) or is_owned(site):
        return
    target = card(site.options)
    written = dotted(site.node)
    if not site.source.in_f_string(site.node):
        end = site.source.span(site.node)[1]
        site.edit.replace(end - len("is_cuda"), end, target.is_attr)
    elif written is None or not swap(site, site.node, written, written.replace(".is_cuda", f".{target.is_attr}")):
        site.manual(f"write {target.is_attr} for is_cuda", zh=f"请把 is_cuda 改为 {target.is_attr}")
        return
    site.changed(f"is_cuda becomes {target.is_attr}", zh=f"is_cuda 替换为 {target.is_attr}")


def is_owned(site: Site) -> bool:
    """Some file of the project has an `is_cuda` of its own."""
    if ("is_cuda", "owned") not in site.work.seen and ("is_cuda", "free") not in site.work.seen:
        project = site.work.project
        sources = [site.source, *(project.parsed[path].source for path in sorted(project.files_with("is_cuda")))]
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
