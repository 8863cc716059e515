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

from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import rename_or_report

rule = Rule(__name__, target_needs="device_calls", spec_rows=("P2", "6"), targets=ALL_CARDS)


@rule.reference("torch.cuda")
def rename_module(site: Site) -> None:
    module = site.target.card.torch_module
    if rename_or_report(site, site.node, module):
        site.advise(
            f"torch.cuda is used as a value here: make sure that every name used from it exists in {module}",
            zh=f"此处把 torch.cuda 当作值使用:请确认后续用到的名称在 {module} 中都存在",
        )
