"""Name the accelerator in the text of a tensor type.

     import torch
     import torch_npu
    -x = x.type("torch.cuda.HalfTensor")
    +x = x.type("torch.npu.HalfTensor")

PyTorch's oldest way to choose a device is a type by its name. The text is changed where such a type is taken and where
one is compared with another's; types that are written as code are those of `cuda_api`, and a default type is left to a
person by `default_tensor_type`.

With `--to any` the helper has the types; a comparison of names needs manual review, since without a card the name is
`torch.FloatTensor`:

     import torch
    -x = x.type("torch.cuda.HalfTensor")
    +from accelerator_device import accelerator
    +x = x.type(accelerator.HalfTensor)
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.torch_api import BOTH
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._type_uses import NAME, is_type_of
from viaduct.migration.targets import card, helper

rule = Rule(__name__, spec="P2 P9", kind="mandatory", targets=("npu", "mlu", "any"), former=("any_type_text",))

TYPE = re.compile(r"torch\.cuda\.(?:Float|Half|BFloat16|Int|Long|Short|Char|Byte|Bool)Tensor")


@rule.node(ast.Constant, words=("torch.cuda.",))
def name_type(site: Site) -> None:
    if site.target.is_any:
        return
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
    return isinstance(parent, ast.Compare) and any(is_type_of(side) for side in (parent.left, *parent.comparators))


@rule.method("type")
def take_from_helper(site: Site) -> None:
    first = site.node.args[0] if site.node.args and site.target.is_any else None
    found = NAME.fullmatch(first.value) if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    if first is not None and found and found[1][1:] in BOTH and site.editable:
        site.edit.node(first, f"{helper(site)}{found[1]}")
        site.changed("the type is that of the available card", zh="张量类型取决于现有的加速卡")


@rule.node(ast.Compare, words=("torch.cuda.",))
def report_comparison(site: Site) -> None:
    sides = [site.node.left, *site.node.comparators] if site.target.is_any else []
    texts = [side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]
    if any(is_type_of(side) for side in sides) and any(NAME.fullmatch(text) for text in texts):
        site.manual(
            "the name of a tensor's type is compared: compare its dtype, and check device.type in accelerator.TYPES",
            zh="此处比较张量类型名:请改为判断 dtype,并判断 device.type in accelerator.TYPES",
        )
