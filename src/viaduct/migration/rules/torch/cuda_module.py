"""Replace the module torch.cuda as a value.

     import torch
    +import torch_npu
    -backend = torch.cuda
    +backend = torch.npu
     backend.synchronize()

`torch.cuda` as a value, in an assignment, an argument or `getattr`, becomes the card's module. The names that the
script uses from it are not checked, so the rule also advises to do so.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._chains import rename_to

rule = Rule(__name__, targets=("npu", "mlu"))


@rule.reference("torch.cuda")
def rename(site: Site) -> None:
    card = site.target.card
    renamed = rename_to(site, site.node, site.name, card.torch_module)
    if renamed:
        site.report_change(
            f"the module torch.cuda becomes {card.torch_module}", zh=f"模块 torch.cuda 替换为 {card.torch_module}"
        )
        site.advise(
            f"torch.cuda is used as a value here: make sure that every name used from it exists in {card.torch_module}",
            zh=f"此处把 torch.cuda 当作值使用:请确认后续用到的名称在 {card.torch_module} 中都存在",
        )
    elif renamed is False:  # None: the import or assignment of the name is edited instead
        site.request_review(
            f"write {card.torch_module} for torch.cuda; it cannot be edited safely here",
            zh=f"请改为 {card.torch_module}",
        )
