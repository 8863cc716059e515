"""Change names of torch.cuda that are written as strings for Python.

     import torch
    +import torch_npu
     from unittest import mock
    -with mock.patch("torch.cuda.is_available"):
    +with mock.patch("torch.npu.is_available"):
         pass

A quoted annotation, what `mock.patch`, `monkeypatch.setattr` or `import_module` is given. Text for people stays, and so
does a name that the card has not. Types of tensors by name are those of `tensor_type`.
"""

from __future__ import annotations

import ast

from viaduct.cards.torch_api import counterpart
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._type_uses import NAME
from viaduct.migration.targets import card

rule = Rule(__name__, spec="P2 6", kind="mandatory", targets=("npu", "mlu"))

TAKES_NAMES = ("patch", "setattr", "delattr", "import_module")


@rule.node(ast.Constant, words=("torch.cuda",))
def rename(site: Site) -> None:
    """Replace a name of torch.cuda in a string that Python reads as a name."""
    match = NAME.fullmatch(site.node.value) if isinstance(site.node.value, str) else None
    if match is None or not site.editable or not is_a_name(site, site.node):
        return
    target = card(site.options)
    known = counterpart(match[1][1:], target) if match[1] else ""
    written = site.text(site.node)
    if known is None or written[1:-1] != site.node.value:
        return
    new = f"{target.root}.{known}".rstrip(".")
    site.work.effects.add(target.module)
    site.edit.node(site.node, f"{written[0]}{new}{written[-1]}")
    site.changed(f"{site.node.value!r} becomes {new!r}", zh=f"{site.node.value!r} 替换为 {new!r}")


def is_a_name(site: Site, node: ast.expr) -> bool:
    """Return True if what stands around a string shows that it is a name of code."""
    around = site.source.parents[node]
    match around:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[first, *_]):
            return name in TAKES_NAMES and first is node
        case ast.arg() | ast.AnnAssign() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return node is getattr(around, "annotation", None) or node is getattr(around, "returns", None)
    return False
