"""Advise on tensors that are pinned where there may be no card.

     import torch
     batch = batch.pin_memory()

A tensor's own `pin_memory()` is refused by newer torch where there is no card; outside a branch that asks for one, that
is mentioned. A DataLoader needs nothing: it pins for the accelerator that is there, and its argument for another device
is deprecated.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._helper import is_guarded

rule = Rule(__name__, spec="P16", kind="advice", targets=("any",), former=("any_pinned_memory",))
EXAMPLE_OPTIONS = {"to": "any"}


@rule.method("pin_memory")
def advise(site: Site) -> None:
    if not site.node.args and not site.node.keywords and not is_guarded(site, site.node) and not is_compared(site):
        site.advice(
            "without a card torch may refuse to pin memory: ask accelerator.is_available() first",
            zh="没有加速卡时 torch 可能拒绝锁页:请先判断 accelerator.is_available()",
        )


def is_compared(site: Site) -> bool:
    """Return True in a branch for the card's type."""
    tests = [parent.test for parent in site.source.ancestors(site.node) if isinstance(parent, ast.If | ast.IfExp)]
    return any(".TYPES" in ast.unparse(test) or '"cuda"' in site.text(test) for test in tests)
