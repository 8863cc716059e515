"""Replace `is_cuda` of a tensor by the card's attribute.

     import torch
    +import torch_npu
     def place(x):
    -    return x.is_cuda
    +    return x.is_npu

A field `is_cuda` that the project defines or assigns (`self.is_cuda = …`, `args.is_cuda` of an option) stays. An
expression that may be either is reported as unresolved.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import dotted_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_dotted_name
from viaduct.migration.rules.torch._is_cuda import may_be_tensor_attribute, report_if_ambiguous

rule = Rule(__name__, requirement="moves", rows=("P10", "6"), targets=("npu", "mlu"))


@rule.node(ast.Attribute, only_if_file_contains=("is_cuda",))
def rename_attribute(site: Site) -> None:
    card = site.target.card
    if not may_be_tensor_attribute(site) or report_if_ambiguous(site, card.tensor_flag):  # is_npu, is_mlu
        return
    name = dotted_name(site.node)
    if not site.source.is_in_f_string(site.node):
        site.edit.replace_attribute(site.node, card.tensor_flag)
    elif not name or not replace_dotted_name(site, site.node, name, name.replace(".is_cuda", f".{card.tensor_flag}")):
        site.request_review(f"write {card.tensor_flag} for is_cuda", zh=f"请把 is_cuda 改为 {card.tensor_flag}")
        return
    site.report_change(f"is_cuda becomes {card.tensor_flag}", zh=f"is_cuda 替换为 {card.tensor_flag}")
