"""Replace TF32 switches by the switches of the card's reduced-precision float32 mode.

     import torch
    +import torch_npu
    -torch.backends.cuda.matmul.allow_tf32 = True
    +torch.npu.matmul.allow_hf32 = True
    -torch.backends.cudnn.allow_tf32 = False
    +torch.npu.conv.allow_hf32 = False

The NPU's format is HF32; the MLU has TF32 under other names. Without this the card's default would be used: on the NPU
HF32 for convolutions and full precision for matrix products.
"""

from __future__ import annotations

import ast

from viaduct.cards.torch_api import TF32_SWITCHES
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_setting

rule = Rule(__name__, spec_rows=("P19", "6"), category="advice", targets=ALL_CARDS)


@rule.node(ast.Attribute, only_if_file_contains=("allow_tf32",))
def replace_switch(site: Site) -> None:
    name = site.qualified_name(site.node) or ""
    new = TF32_SWITCHES[site.target.card.name].get(name)
    if new is not None:
        replace_setting(site, name, new, risk="medium")
