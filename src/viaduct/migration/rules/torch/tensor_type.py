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

from viaduct.cards import torch_api
from viaduct.migration.lookups import literal_text, method_name
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._type_uses import CUDA_NAME, is_type_call

rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P2", "P9"),
    targets=ALL_TARGETS,
    former_names=("any_type_text",),
)

TENSOR_TYPES = tuple(f"{kind}Tensor" for kind in torch_api.TENSOR_TYPES)


@rule.node(ast.Constant, only_if_file_contains=("torch.cuda.",))
def replace_type(site: Site) -> None:
    """Replace the type in a conversion or comparison of a tensor; with `--to any` report a comparison."""
    match = CUDA_NAME.fullmatch(literal_text(site.node))
    if match is None or not (is_conversion(site) or is_comparison(site)):
        return
    if is_comparison(site) and site.target.is_any_card:
        site.request_review(
            "the name of a tensor's type is compared: compare its dtype, and check device.type in accelerator.TYPES",
            zh="此处比较张量类型名:请改为判断 dtype,并判断 device.type in accelerator.TYPES",
        )
    elif match["member"] in TENSOR_TYPES and site.is_editable and "torch.cuda." in site.text_of(site.node):
        site.edit.replace_node(site.node, site.target.render_tensor_type(site, match["member"]))
        message = site.target.select_message(
            ("the tensor type is {card.torch_module}'s", "张量类型改为 {card.torch_module} 的类型"),
            ("the tensor type is the available card's", "张量类型取决于现有的加速卡"),
        )
        site.report_change(*message)


def is_conversion(site: Site) -> bool:
    """Return True for the argument of `x.type(…)`, or a branch of it."""
    parent = get_parent_of_branch(site)
    if not isinstance(parent, ast.Call):
        return False
    return method_name(parent) == "type" or site.qualified_name(parent.func) == "torch.Tensor.type"


def is_comparison(site: Site) -> bool:
    """Return True for a string that is compared with `x.type()`."""
    parent = get_parent_of_branch(site)
    return isinstance(parent, ast.Compare) and any(map(is_type_call, (parent.left, *parent.comparators)))


def get_parent_of_branch(site: Site) -> ast.AST:
    """Return the node around the site's string, or around the conditional expression that it is a branch of."""
    parent = site.source.parents[site.node]
    return site.source.parents[parent] if isinstance(parent, ast.IfExp) else parent
