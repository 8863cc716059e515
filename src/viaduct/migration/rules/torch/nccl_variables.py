"""Report environment variables that only NCCL or CUDA reads.

    import os
    import torch
    os.environ["NCCL_SOCKET_IFNAME"] = "eth0"

They have no effect on another card, and no value of theirs can be carried over blindly: HCCL and CNCL have variables of
their own with other meanings. The finding says which come nearest.
"""

from __future__ import annotations

import ast

from viaduct.cards.environment import NCCL, OTHERS, on_nccl, on_nccl_alone, on_other
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _variables as variables
from viaduct.migration.targets import card, cards

rule = Rule(__name__, spec="P20 6", kind="report", targets=("npu", "mlu", "any"))


@rule.node(ast.Constant, words=("NCCL_", *OTHERS))
def name_variable(site: Site) -> None:
    """Report an environment variable of CUDA or NCCL."""
    name = site.node.value
    if not isinstance(name, str) or not (name in OTHERS or NCCL.fullmatch(name)):
        return
    if not is_in_torch_program(site) or not variables.is_variable(site, site.node):
        return
    if name in OTHERS:
        for item in cards(site.options):
            english, chinese = on_other(name, item)
            site.advice(english, zh=chinese)
    elif site.options.to == "any":
        english, chinese = on_nccl_alone(name)
        site.advice(english, zh=chinese)
    else:
        english, chinese = on_nccl(name, card(site.options))
        site.manual(english, zh=chinese)
