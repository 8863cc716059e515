"""Advise on tensors that are pinned on a machine that may have no card.

     import torch
     batch = batch.pin_memory()

Newer releases of torch refuse a tensor's own `pin_memory()` where there is no card; outside a branch that asks for one,
the rule advises to test for a card first. A DataLoader needs nothing: it pins for the accelerator that is there.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._helper import is_under_card_test

rule = Rule(__name__, category="advice", targets=("any",), former_names=("any_pinned_memory",))


@rule.method("pin_memory")
def advise(site: Site) -> None:
    """Advise to ask for a card before a tensor is pinned, unless a branch does."""
    if (
        not site.node.args
        and not site.node.keywords
        and not is_under_card_test(site, site.node)
        and not is_for_card(site)
    ):
        site.advise(
            "without a card torch may refuse to pin memory: test accelerator.is_available() first",
            zh="没有加速卡时 torch 可能拒绝锁页:请先判断 accelerator.is_available()",
        )


def is_for_card(site: Site) -> bool:
    """Return True in a branch that compares a device's type with the card's."""
    tests = [parent.test for parent in site.source.ancestors(site.node) if isinstance(parent, ast.If | ast.IfExp)]
    return any(".TYPES" in ast.unparse(test) or '"cuda"' in site.text(test) for test in tests)
