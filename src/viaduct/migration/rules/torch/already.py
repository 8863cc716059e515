"""Point out files that already have code for the card beside code for CUDA.

A script that chooses between CUDA and the card by itself needs no rewriting: its CUDA branches become a second branch
for the same card. That does no harm, but it is seldom what is wanted: leave such a file out, or look at the branches.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P1 6", kind="advice", targets=("npu", "mlu"), order=5)


@rule.file(words=("torch.npu", "torch.mlu", "torch_npu", "torch_mlu"))
def report(site: Site) -> None:
    target = card(site.options)
    names = [*site.work.index.calls, *site.work.index.references]
    both = [any(name.startswith(f"{root}.") for name in names) for root in (target.root, "torch.cuda")]
    if all(both):
        first = next(node for node in site.source.nodes if is_in(site, node, f"{target.root}."))
        site.advice(
            f"this file already has code for the {target.title} beside code for CUDA: see that both are still wanted",
            zh=f"此文件中已有 {target.title} 与 CUDA 两种代码:请确认两者是否都还需要",
            node=first,
        )


def is_in(site: Site, node: ast.AST, root: str) -> bool:
    return isinstance(node, ast.Attribute) and (site.qualified(node) or "").startswith(root)
