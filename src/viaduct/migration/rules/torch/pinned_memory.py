"""Advise on `tensor.pin_memory()` without a test for a card.

     import torch
     batch = batch.pin_memory()

Newer releases of torch refuse `tensor.pin_memory()` on a machine without a card. Calls in a branch that tests for a
card, and the argument of a DataLoader, are right.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._helper import runs_only_with_card

rule = Rule(__name__, spec_rows=("P16",), category="advice", targets=("any",), former_names=("any_pinned_memory",))


@rule.method("pin_memory")
def advise_card_test(site: Site) -> None:
    """Advise to test for a card before a tensor is pinned, unless a branch does."""
    has_arguments = site.node.args or site.node.keywords
    if not has_arguments and not runs_only_with_card(site, site.node) and not is_under_type_test(site):
        site.advise(
            "without a card torch may refuse to pin memory: test accelerator.is_available() first",
            zh="没有加速卡时 torch 可能拒绝锁页:请先判断 accelerator.is_available()",
        )


def is_under_type_test(site: Site) -> bool:
    """Return True in a branch under `device.type == "cuda"` or `device.type in accelerator.TYPES`."""
    tests = [parent.test for parent in site.source.ancestors(site.node) if isinstance(parent, ast.If | ast.IfExp)]
    return any(".TYPES" in ast.unparse(test) or '"cuda"' in site.text_of(test) for test in tests)
