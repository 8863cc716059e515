"""Choose among the cards under each card's own variable.

     from os import environ
     import torch
    -environ["CUDA_VISIBLE_DEVICES"] = gpus
    +environ["CUDA_VISIBLE_DEVICES"] = environ["ASCEND_RT_VISIBLE_DEVICES"] = environ["MLU_VISIBLE_DEVICES"] = gpus

A variable of another card disturbs nobody. The NPU's takes digits and commas in ascending order alone: with `1,0` it
sees no device. Where the variable is only read, it needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import is_text
from viaduct.migration.rules.torch._environment import can_be_carried, why_not
from viaduct.migration.rules.torch._targets import CARDS
from viaduct.migration.rules.torch.device_string import imports_torch

rule = Rule(__name__, spec="P20", kind="mandatory", targets=("any",), order=80)
EXAMPLE_OPTIONS = {"to": "any"}

CUDA = "CUDA_VISIBLE_DEVICES"


@rule.node(ast.Constant, words=(CUDA,))
def variable(site: Site) -> None:
    if (
        not is_text(site.node, CUDA)
        or not imports_torch(site)
        or isinstance(site.source.parents.get(site.node), ast.Expr)
    ):
        return
    target = site.source.parents.get(site.node)
    statement = site.source.parents.get(target) if target is not None else None
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Subscript) and target in statement.targets:
        assign(site, statement, target)
    elif site.editable and "VISIBLE_DEVICES" not in site.text(site.source.statement(site.node)).replace(CUDA, ""):
        names = ", ".join(card.visible for card in CARDS.values())
        site.advice(f"other cards have variables of their own: {names}", zh=f"其他加速卡使用各自的变量:{names}")


def assign(site: Site, statement: ast.Assign, target: ast.Subscript) -> None:
    written = [site.text(one) for one in statement.targets]
    if site.qualified(target.value) != "os.environ" or any("ASCEND" in text or "MLU" in text for text in written):
        return
    value = statement.value
    if isinstance(value, ast.Constant) and not can_be_carried(str(value.value), CARDS["npu"]):
        english, chinese = why_not(str(value.value), CARDS["npu"])
        site.manual(english, zh=chinese)
        return
    others = [f"{site.text(target.value)}[{quoted(site, card.visible)}] = " for card in CARDS.values()]
    equals = next(site.source.tokens_from(site.source.span(target)[1]))
    site.edit.insert(equals.end, f" {''.join(others).rstrip()}")
    site.changed(
        "the cards to be seen are named to each kind; an NPU wants them in ascending order",
        zh="同时设置各类加速卡的可见设备变量;NPU 要求编号升序",
        risk="medium",
    )


def quoted(site: Site, name: str) -> str:
    return site.text(site.node).replace(CUDA, name)
