"""Name the accelerator in the text of a tensor type.

     import torch
     import torch_npu
    -x = x.type("torch.cuda.HalfTensor")
    +x = x.type("torch.npu.HalfTensor")

PyTorch's oldest way to choose a device is a type by its name. The text is changed where such a type is taken and where
one is compared with another's; types that are written as code are those of `cuda_api`, and a default type is left to a
person by `default_tensor_type`.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P2 P9", kind="mandatory", targets=("npu", "mlu"), order=40)

TYPE = re.compile(r"torch\.cuda\.(?:Float|Half|BFloat16|Int|Long|Short|Char|Byte|Bool)Tensor")


@rule.node(ast.Constant, words=("torch.cuda.",))
def name_type(site: Site) -> None:
    if not isinstance(site.node.value, str) or not TYPE.fullmatch(site.node.value) or not is_taken(site):
        return
    text = site.text(site.node)
    if not site.editable or "torch.cuda." not in text:
        return
    site.edit.node(site.node, text.replace("torch.cuda.", f"{card(site.options).root}."))
    site.changed(f"the type is one of {card(site.options).root}", zh=f"张量类型改为 {card(site.options).root} 的类型")


def is_taken(site: Site) -> bool:
    parent: ast.AST = site.source.parents[site.node]
    if isinstance(parent, ast.IfExp):
        parent = site.source.parents[parent]
    if isinstance(parent, ast.Call):
        method = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
        return method == "type" or site.qualified(parent.func) == "torch.Tensor.type"
    return isinstance(parent, ast.Compare) and any(asks_type(side) for side in (parent.left, *parent.comparators))


def asks_type(node: ast.expr) -> bool:
    """`x.type() == "torch.cuda.FloatTensor"`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "type"
