"""Advise on cuDNN's flags, which have no effect on the card.

With `--to mlu`:

     import torch
    +import torch_mlu
    -torch.backends.cudnn.enabled = False
    +torch.backends.mlufusion.enabled = False
     torch.backends.cudnn.benchmark = True

`benchmark`, `deterministic` and the other flags have no effect without cuDNN, and stay; for `deterministic` the finding
names the setting to use instead. The MLU has its own switch for `enabled`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_setting

rule = Rule(__name__, spec_rows=("P19", "6"), category="advice", targets=ALL_CARDS)

CUDNN = "torch.backends.cudnn"
NO_EFFECT = ("it has no effect here and does no harm", "在此设备上无效,但无害")
DETERMINISM = (
    "it has no effect here; for reproducible results use torch.use_deterministic_algorithms(True)",
    "在此设备上无效;如需结果可复现,请使用 torch.use_deterministic_algorithms(True)",
)


@rule.node(ast.Attribute, only_if_file_contains=("cudnn",))
def advise_flag(site: Site) -> None:
    """Advise on a flag of cuDNN that the script sets, or replace `enabled` on the MLU.

    The rule tf32 edits `allow_tf32`.
    """
    name = site.qualified_name(site.node) or ""
    if not name.startswith(f"{CUDNN}.") or isinstance(site.source.parents.get(site.node), ast.Attribute):
        return
    flag = name[len(CUDNN) + 1 :]
    if flag == "enabled" and site.options.to == "mlu":
        replace_setting(site, name, "torch.backends.mlufusion.enabled", risk="low")
    elif flag != "allow_tf32" and isinstance(site.node.ctx, ast.Store):
        english, chinese = DETERMINISM if flag == "deterministic" else NO_EFFECT
        title = site.target.card.title
        site.advise(f"cudnn.{flag} on the {title}: {english}", zh=f"{title} 上的 cudnn.{flag}:{chinese}")
