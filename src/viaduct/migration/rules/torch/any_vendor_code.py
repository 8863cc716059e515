"""Name code for one vendor's card in a source that is to run on every machine.

    import torch
    import torch_npu
    torch.npu.synchronize()

Without the plug-in the import fails. The helper imports it where it is installed, so here it may go; and what the
script asks of torch.npu or torch.mlu it can ask of the helper. What is tried (`try`) or stands in a branch (`if`) is
left alone; a condition that itself asks torch.npu is not, unless it asks `hasattr(torch, "npu")` first.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._targets import CARDS
from viaduct.migration.rules.torch.device_string import imports_torch
from viaduct.migration.rules.torch.patch_mode import PATCHES
from viaduct.migration.rules.torch.patched import imported

rule = Rule(__name__, spec="P1 6", kind="report", targets=("any",), order=94)

PLUGINS = tuple(card.module for card in CARDS.values())
ROOTS = tuple(f"{card.root}.*" for card in CARDS.values())
METHODS = tuple(card.method for card in CARDS.values())


@rule.node(ast.Import, ast.ImportFrom, words=PLUGINS)
def plugin(site: Site) -> None:
    names = [name for name in imported(site.node) if name.partition(".")[0] in PLUGINS]
    if not names or chosen(site):
        return
    if names[0] in PATCHES:
        site.manual(
            f"{names[0]} turns CUDA into one vendor's card: take it out, the source serves every card now",
            zh=f"{names[0]} 会把 CUDA 替换为某一厂商的设备:源码现已适用于各种加速卡,请去掉",
            risk="high",
        )
        return
    site.manual(
        f"{names[0]} is not on every machine: the helper imports the plug-in where it is, so take this out or try it",
        zh=f"并非每台机器都有 {names[0]}:辅助模块会在有插件时导入,请去掉此行或用 try 保护",
        risk="high",
    )


@rule.call(*ROOTS)
def called(site: Site) -> None:
    tell(site, site.name)


@rule.reference(*ROOTS)
def mentioned(site: Site) -> None:
    tell(site, site.name)


def tell(site: Site, name: str) -> None:
    if not chosen(site):
        site.manual(
            f"{name} is one vendor's: write accelerator.{name.split('.', 2)[2]}",
            zh=f"{name} 仅适用于某一厂商的设备:请改为 accelerator.{name.split('.', 2)[2]}",
            risk="high",
        )


@rule.method(METHODS[0])
def moved_to_npu(site: Site) -> None:
    moved(site)


@rule.method(METHODS[1])
def moved_to_mlu(site: Site) -> None:
    moved(site)


def moved(site: Site) -> None:
    if imports_torch(site) and not chosen(site):
        site.manual(
            f".{site.name}() moves to one vendor's card: write .to(accelerator.device())",
            zh=f".{site.name}() 只移动到某一厂商的设备:请改为 .to(accelerator.device())",
        )


def chosen(site: Site) -> bool:
    """In a branch, or tried; a question is asked whatever the answer is."""
    child: ast.AST = site.node
    for one in site.source.ancestors(site.node):
        asks = isinstance(one, ast.If | ast.IfExp) and child is one.test and "hasattr" not in ast.unparse(one.test)
        if isinstance(one, ast.Try | ast.If | ast.IfExp) and not asks and not is_main(one):
            return True
        child = one
    return False


def is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__")
