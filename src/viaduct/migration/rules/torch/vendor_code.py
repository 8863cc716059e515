"""Report code for one vendor's card with `--to any`.

    import torch
    import torch_npu
    torch.npu.synchronize()

On a machine without torch_npu the import fails. The import can be removed: the helper module accelerator_device, which
the migration adds to the project, imports torch_npu or torch_mlu if it is installed. Its object `accelerator` has the
functions of torch.npu and torch.mlu. Code in a `try` or in a branch is not reported. A condition with torch.npu is,
unless it also contains a test such as `hasattr(torch, "npu")`.
"""

from __future__ import annotations

import ast

from viaduct.cards import CARDS
from viaduct.migration.lookups import imported_names
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._imports import RUN_TIME_PATCHES

rule = Rule(
    __name__,
    target_needs="torch_functions",
    spec_rows=("P1", "6"),
    category="report",
    targets=("any",),
    former_names=("any_vendor_code",),
    runs_last=True,
)

PLUGINS = tuple(card.plugin for card in CARDS.values())
VENDOR_NAMES = tuple(f"{card.torch_module}.*" for card in CARDS.values())
VENDOR_METHODS = tuple(card.device for card in CARDS.values())


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=PLUGINS)
def report_import(site: Site) -> None:
    names = [name for name in imported_names(site.node) if name.partition(".")[0] in PLUGINS]
    if not names or is_conditional(site):
        return
    if names[0] in RUN_TIME_PATCHES:
        site.request_review(
            f"{names[0]} redirects CUDA to one vendor's card: remove it, the source now supports every card",
            zh=f"{names[0]} 会把 CUDA 替换为某一厂商的设备:源码现已适用于各种加速卡,请去掉",
            risk="high",
        )
        return
    site.request_review(
        f"{names[0]} is not on every machine: the helper imports the plug-in if it is installed, so remove "
        "this line or wrap it in try",
        zh=f"并非每台机器都有 {names[0]}:辅助模块会在有插件时导入,请去掉此行或用 try 保护",
        risk="high",
    )


@rule.use(*VENDOR_NAMES)
def report_vendor_name(site: Site) -> None:
    if not is_conditional(site):
        replacement = f"accelerator.{site.name.split('.', 2)[2]}"  # without torch.npu
        site.request_review(
            f"{site.name} is for one vendor's card: write {replacement}",
            zh=f"{site.name} 仅适用于某一厂商的设备:请改为 {replacement}",
            risk="high",
        )


@rule.method(*VENDOR_METHODS)
def report_move(site: Site) -> None:
    if is_in_torch_program(site) and not is_conditional(site):
        site.request_review(
            f".{site.name}() moves to one vendor's card: write .to(accelerator.device())",
            zh=f".{site.name}() 只移动到某一厂商的设备:请改为 .to(accelerator.device())",
        )


def is_conditional(site: Site) -> bool:
    """Return True in a `try`, in a branch other than the main guard, and in a condition with hasattr."""
    child: ast.AST = site.node
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, ast.If | ast.IfExp):
            test = ast.unparse(parent.test)
            is_plain_condition = child is parent.test and "hasattr" not in test
            is_main_guard = isinstance(parent, ast.If) and test.startswith("__name__")
            if not is_plain_condition and not is_main_guard:
                return True
        elif isinstance(parent, ast.Try):
            return True
        child = parent
    return False
