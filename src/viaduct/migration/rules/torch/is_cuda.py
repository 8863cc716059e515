"""Replace `is_cuda` of a tensor by the card's attribute.

     import torch
    +import torch_npu
     def place(x):
    -    return x.is_cuda
    +    return x.is_npu

A field `is_cuda` that the project defines or assigns (`self.is_cuda = …`, `args.is_cuda` of an option) stays. An
expression that may be either is reported as unresolved. A lookup by name, `getattr(x, "is_cuda")`, needs manual review.

With `--to any` the type of the tensor's device is compared with the types of all cards:

     import torch
    +from accelerator_device import accelerator
     def place(x):
    -    return x.is_cuda
    +    return x.device.type in accelerator.TYPES
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import dotted_name, last_name, literal_text
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_in_f_string
from viaduct.migration.rules.torch._helper import parenthesize, report_if_in_torchscript
from viaduct.migration.rules.torch._is_cuda import may_be_tensor_attribute, report_if_ambiguous

rule = Rule(
    __name__, target_needs="moves", spec_rows=("P10", "6"), targets=ALL_TARGETS, former_names=("any_device_compare",)
)


@rule.node(ast.Attribute, only_if_file_contains=("is_cuda",))
def replace_is_cuda(site: Site) -> None:
    if not may_be_tensor_attribute(site) or report_if_ambiguous(site) or report_if_in_torchscript(site, site.node):
        return
    old, receiver = ast.unparse(site.node), site.node.value
    # In an f-string the receiver's position may be wrong (Source.is_in_f_string).
    new = site.target.render_is_cuda(site, site.text_of(receiver) if site.is_editable else ast.unparse(receiver))
    in_parentheses = f"({new})" if " " in new else new
    if site.is_editable:
        site.edit.replace_node(site.node, parenthesize(site, site.node, new))
    elif not dotted_name(site.node) or not replace_in_f_string(site, site.node, old, in_parentheses):
        site.request_review(f"write {new} for {old}", zh=f"请把 {old} 改为 {new}")
        return
    site.report_change(f"{old} becomes {new}", zh=f"{old} 替换为 {new}")


@rule.node(ast.Call, only_if_file_contains=("getattr", "attrgetter"))
def report_lookup(site: Site) -> None:
    """Report `getattr(x, "is_cuda")` and `attrgetter("is_cuda")`."""
    function = last_name(site.node.func)
    names = {"getattr": site.node.args[1:2], "attrgetter": site.node.args}.get(function, [])
    if "is_cuda" not in map(literal_text, names) or not is_in_torch_program(site):
        return
    new, _ = site.target.select_message(("{card.tensor_flag}", ""), ("x.device.type in accelerator.TYPES", ""))
    site.request_review(
        f"'is_cuda' is looked up by its name: if the is_cuda of a tensor is meant, use {new}",
        zh=f"此处按名称查找 is_cuda:若指张量的属性,请改用 {new}",
    )
