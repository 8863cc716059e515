"""Replace CUDA by the card in strings that name a tensor type.

     import torch
     import torch_npu
    -x = x.type("torch.cuda.HalfTensor")
    +x = x.type("torch.npu.HalfTensor")

The rule edits the string in conversions of a tensor and in comparisons with a tensor's type. `cuda_api` handles types
that are written as code, `default_tensor_type` a default type.

With `--to any` the type comes from the helper module accelerator_device; a comparison needs manual review, since the
name is `torch.FloatTensor` on a machine without a card:

     import torch
    -x = x.type("torch.cuda.HalfTensor")
    +from accelerator_device import accelerator
    +x = x.type(accelerator.HalfTensor)
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.torch_api import NPU_AND_MLU_NAMES
from viaduct.migration.lookups import literal_text, method_name
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._type_uses import CUDA_NAME, is_type_call
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__, requirement="device_strings", rows=("P2", "P9"), targets=ALL_TARGETS, former_names=("any_type_text",)
)

CUDA_TYPE = re.compile(r"torch\.cuda\.(?:Float|Half|BFloat16|Int|Long|Short|Char|Byte|Bool)Tensor")


@rule.node(ast.Constant, only_if_file_contains=("torch.cuda.",))
def rename_type(site: Site) -> None:
    if site.target.is_any_card or not CUDA_TYPE.fullmatch(literal_text(site.node)) or not is_used_as_type(site):
        return
    text, root = site.text_of(site.node), site.target.card.torch_module
    if site.is_editable and "torch.cuda." in text:
        site.edit.replace_node(site.node, text.replace("torch.cuda.", f"{root}."))
        site.report_change(f"the tensor type is {root}'s", zh=f"张量类型改为 {root} 的类型")


def is_used_as_type(site: Site) -> bool:
    """Return True for the argument of `x.type(…)`, and for a string that is compared with `x.type()`."""
    parent: ast.AST = site.source.parents[site.node]
    if isinstance(parent, ast.IfExp):
        parent = site.source.parents[parent]
    if isinstance(parent, ast.Call):
        method = method_name(parent)
        return method == "type" or site.qualified_name(parent.func) == "torch.Tensor.type"
    return isinstance(parent, ast.Compare) and any(is_type_call(side) for side in (parent.left, *parent.comparators))


@rule.method("type")
def replace_by_helper_type(site: Site) -> None:
    """Replace the string in `x.type("torch.cuda.HalfTensor")` by `accelerator.HalfTensor`."""
    dtype = site.node.args[0] if site.node.args and site.target.is_any_card else None
    match = CUDA_NAME.fullmatch(literal_text(dtype))
    if dtype is not None and match and match["member"] in NPU_AND_MLU_NAMES and site.is_editable:
        site.edit.replace_node(dtype, f"{import_helper(site)}.{match['member']}")
        site.report_change("the tensor type is the available card's", zh="张量类型取决于现有的加速卡")


@rule.node(ast.Compare, only_if_file_contains=("torch.cuda.",))
def report_comparison(site: Site) -> None:
    """Report a comparison of `x.type()` with the name of a type with `--to any`."""
    sides = [site.node.left, *site.node.comparators] if site.target.is_any_card else []
    if any(map(is_type_call, sides)) and any(CUDA_NAME.fullmatch(literal_text(side)) for side in sides):
        site.request_review(
            "the name of a tensor's type is compared: compare its dtype, and check device.type in accelerator.TYPES",
            zh="此处比较张量类型名:请改为判断 dtype,并判断 device.type in accelerator.TYPES",
        )
