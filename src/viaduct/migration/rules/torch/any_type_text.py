"""Take the type of a tensor from whatever card there is where it is named by a string.

     import torch
    -x = x.type("torch.cuda.HalfTensor")
    +from accelerator_device import accelerator
    +x = x.type(accelerator.HalfTensor)

`Tensor.type` takes the type as well as its name. Where the name that it returns is compared, it needs manual review:
without a card it is `torch.FloatTensor`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import helper
from viaduct.migration.rules.torch._surface import BOTH
from viaduct.migration.rules.torch.cuda_strings import NAME, is_type_of

rule = Rule(__name__, spec="P2", kind="mandatory", targets=("any",), order=20)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.method("type")
def take(site: Site) -> None:
    first = site.node.args[0] if site.node.args else None
    found = NAME.fullmatch(first.value) if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    if first is not None and found and found[1][1:] in BOTH and site.editable:
        site.edit.node(first, f"{helper(site)}{found[1]}")
        site.changed("the type is that of whatever card there is", zh="张量类型取决于现有的加速卡")


@rule.node(ast.Compare, words=("torch.cuda.",))
def compared(site: Site) -> None:
    sides = [site.node.left, *site.node.comparators]
    texts = [one.value for one in sides if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if any(is_type_of(one) for one in sides) and any(NAME.fullmatch(text) for text in texts):
        site.manual(
            "the name of a tensor's type is compared: ask for its dtype, and for its device.type in accelerator.TYPES",
            zh="此处比较张量类型名:请改为判断 dtype,并判断 device.type in accelerator.TYPES",
        )
