"""Advise on torch.compile.

On the NPU it works with a backend made for it: `npugraphs` from torch 2.6 on, or `torchair.get_npu_backend()`. Where
the card's build of torch has no such backend, code that is not compiled gives the same results.
"""

from __future__ import annotations

import ast

from viaduct.cards.advice import COMPILING
from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import cards

rule = Rule(__name__, spec="P21 6", kind="advice", targets=("npu", "mlu", "any"), patch=True, last=True)


@rule.call("torch.compile")
@rule.reference("torch.compile")
def report(site: Site) -> None:
    """Say what torch.compile needs on the card."""
    if isinstance(site.node, ast.Call):
        backend = site.argument("backend")
        if backend is not None and is_chosen(site, backend):
            return
    reported = [COMPILING[target.name] for target in cards(site.options)]
    site.advice(
        f"torch.compile: {'; '.join(english for english, _ in reported)}; without it the results are the same",
        zh=f"torch.compile:{';'.join(chinese for _, chinese in reported)};不编译时结果相同",
        risk="medium",
    )


def is_chosen(site: Site, backend: ast.expr) -> bool:
    """Return True for "npugraphs", a call, a lambda or an imported object; an option of the script may say inductor."""
    made = site.values.origin(backend)
    if isinstance(made, ast.Constant):
        return made.value == "npugraphs"
    return isinstance(made, ast.Call | ast.Lambda) or site.qualified(made) is not None
