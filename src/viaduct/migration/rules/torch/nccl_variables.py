"""Report environment variables for NCCL or CUDA.

    import os
    import torch
    os.environ["NCCL_SOCKET_IFNAME"] = "eth0"

HCCL and CNCL have their own variables, with other meanings; the finding names the nearest ones. So a variable of NCCL
needs manual review for one card; with `--to any` it stays for CUDA and gets advice. Other variables of CUDA, such as
CUDA_LAUNCH_BLOCKING, always get advice.
"""

from __future__ import annotations

import ast

from viaduct.cards.environment import (
    NCCL_VARIABLE,
    OTHER_CUDA_VARIABLES,
    describe_cuda_variable,
    describe_nccl_variable,
    describe_nccl_variable_for_all,
)
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch import _environment_variables as variables

rule = Rule(__name__, target_needs="backend", spec_rows=("P20", "6"), category="report", targets=ALL_TARGETS)


@rule.node(ast.Constant, only_if_file_contains=("NCCL_", *OTHER_CUDA_VARIABLES))
def report_variable(site: Site) -> None:
    name = site.node.value
    if not isinstance(name, str) or not (name in OTHER_CUDA_VARIABLES or NCCL_VARIABLE.fullmatch(name)):
        return
    if not is_in_torch_program(site) or not variables.is_variable_name(site, site.node):
        return
    if name in OTHER_CUDA_VARIABLES:
        for card in site.cards:
            site.advise(*describe_cuda_variable(name, card))
    elif site.target.is_any_card:
        site.advise(*describe_nccl_variable_for_all(name))
    else:
        site.request_review(*describe_nccl_variable(name, site.target.card))
