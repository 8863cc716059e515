"""Ask a tensor whether it is on the card.

     import torch
    +import torch_npu
     def place(x):
    -    return x.is_cuda
    +    return x.is_npu

Both plug-ins give tensors and storages such a property. A field of that name that the project itself defines or assigns
(`self.is_cuda = …`, `args.is_cuda` of an option) stays; where both could be meant, the place is listed as unresolved.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import dotted_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._chains import replace_name
from viaduct.migration.rules.torch._is_cuda import is_tensor_attribute
from viaduct.migration.targets import card

rule = Rule(__name__, targets=("npu", "mlu"))


@rule.node(ast.Attribute, only_files_with=("is_cuda",))
def rename_attribute(site: Site) -> None:
    """Replace `is_cuda` of a tensor by the card's attribute."""
    target = card(site.options)
    if not is_tensor_attribute(site, target.is_attr):
        return
    written = dotted_name(site.node)
    if not site.source.is_in_f_string(site.node):
        end = site.source.span(site.node)[1]
        site.edit.replace(end - len("is_cuda"), end, target.is_attr)
    elif not written or not replace_name(site, site.node, written, written.replace(".is_cuda", f".{target.is_attr}")):
        site.request_review(f"write {target.is_attr} for is_cuda", zh=f"请把 is_cuda 改为 {target.is_attr}")
        return
    site.report_change(f"is_cuda becomes {target.is_attr}", zh=f"is_cuda 替换为 {target.is_attr}")
