"""Say what becomes of cuDNN's flags.

     import torch
    +import torch_mlu
    -torch.backends.cudnn.enabled = False
    +torch.backends.mlufusion.enabled = False
     torch.backends.cudnn.benchmark = True

`benchmark`, `deterministic` and the rest are harmless where there is no cuDNN, and stay; what they were set for needs
another setting, which is named. The MLU has a switch of its own in the place of `enabled`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._chains import dotted, swap
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.rules.torch.tf32 import needed

rule = Rule(__name__, spec="P19 6", kind="advice", targets=("npu", "mlu"), order=20)
EXAMPLE_OPTIONS = {"to": "mlu"}

HOME = "torch.backends.cudnn"
STAYS = ("it has no effect here and does no harm", "在此设备上无效,但无害")
DETERMINISM = (
    "it has no effect here; for repeatable results say torch.use_deterministic_algorithms(True)",
    "在此设备上无效;如需结果可复现,请使用 torch.use_deterministic_algorithms(True)",
)


@rule.node(ast.Attribute, words=("cudnn",))
def flag(site: Site) -> None:
    name = site.qualified(site.node) or ""
    if not name.startswith(f"{HOME}.") or isinstance(site.source.parents.get(site.node), ast.Attribute):
        return
    what = name[len(HOME) + 1 :]
    if what == "enabled" and site.options.to == "mlu":
        enable(site)
    elif what != "allow_tf32" and isinstance(site.node.ctx, ast.Store):
        english, chinese = DETERMINISM if what == "deterministic" else STAYS
        title = card(site.options).title
        site.advice(f"cudnn.{what} on the {title}: {english}", zh=f"{title} 上的 cudnn.{what}:{chinese}")


def enable(site: Site) -> None:
    root = site.work.names.local("torch") or needed(site)
    site.work.effects.add(card(site.options).module)
    if swap(site, site.node, dotted(site.node) or "", f"{root}.backends.mlufusion.enabled"):
        site.changed("cudnn.enabled becomes mlufusion.enabled", zh="cudnn.enabled 替换为 mlufusion.enabled")
