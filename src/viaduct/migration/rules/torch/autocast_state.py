"""Read and set the card's autocast dtype and switch.

     import torch
    +import torch_mlu
    -dtype = torch.get_autocast_gpu_dtype()
    +dtype = torch.mlu.get_autocast_dtype()

`torch.get_autocast_gpu_dtype`, `torch.set_autocast_gpu_dtype`, and without a device type `torch.is_autocast_enabled`
and `torch.set_autocast_enabled`, are for CUDA. Both plug-ins have the first two as `get_autocast_dtype` and
`set_autocast_dtype`, and is_autocast_enabled and set_autocast_enabled of their own.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _imports as imports
from viaduct.migration.rules.torch._chains import rename_to
from viaduct.migration.targets import card

rule = Rule(__name__, spec="P11 6", kind="mandatory", targets=("npu", "mlu"))
EXAMPLE_OPTIONS = {"to": "mlu"}

OWN = {
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    "torch.set_autocast_gpu_dtype": "set_autocast_dtype",
}
SWITCHES = {"torch.is_autocast_enabled": 0, "torch.set_autocast_enabled": 1}


@rule.node(ast.ImportFrom, words=("autocast_gpu_dtype",))
def move_imports(site: Site) -> None:
    if site.node.module == "torch" and not site.node.level:
        package = card(site.options).package
        for old, new in imports.move(site, lambda name: f"{package}.{OWN[name]}" if name in OWN else None):
            site.changed(f"{old} is imported as {new}", zh=f"{old} 改为从 {new} 导入")


@rule.call(*OWN)
@rule.reference(*OWN)
def rename_dtype(site: Site) -> None:
    rename(site, OWN[site.name])


@rule.call(*SWITCHES)
def rename_switch(site: Site) -> None:
    """Rename the switch; with a device type as first argument torch's own function serves every card."""
    if len(site.node.args) == SWITCHES[site.name] and not site.node.keywords and not site.has_unpacked:
        rename(site, site.name.rpartition(".")[2])


def rename(site: Site, name: str) -> None:
    root = card(site.options).root
    node = site.node.func if isinstance(site.node, ast.Call) else site.node
    if isinstance(node, ast.Attribute) and rename_to(site, node, site.name, f"{root}.{name}"):
        site.changed(f"{site.name} becomes {root}.{name}", zh=f"{site.name} 替换为 {root}.{name}")
    elif isinstance(node, ast.Attribute):
        site.manual(f"write {root}.{name} for {site.name}", zh=f"请把 {site.name} 改为 {root}.{name}")
