"""Advise on torch.compile without a backend for the card.

On the NPU it needs a special backend: `npugraphs` from torch 2.6 on, or `torchair.get_npu_backend()`. The script also
runs without torch.compile.
"""

from __future__ import annotations

import ast

from viaduct.cards.advice import TORCH_COMPILE
from viaduct.migration.rule import ALL_MODES, ALL_TARGETS, Rule, Site

rule = Rule(__name__, rows=("P21", "6"), category="advice", targets=ALL_TARGETS, modes=ALL_MODES, runs_last=True)


@rule.use("torch.compile")
def advise_backend(site: Site) -> None:
    if isinstance(site.node, ast.Call):
        backend = site.argument("backend")
        if backend is not None and is_backend_for_card(site, backend):
            return
    english, chinese = zip(*(TORCH_COMPILE[card.name] for card in site.cards), strict=True)
    site.advise(
        f"torch.compile: {'; '.join(english)}; the script also runs without it",
        zh=f"torch.compile:{';'.join(chinese)};不编译也可运行",
        risk="medium",
    )


def is_backend_for_card(site: Site, backend: ast.expr) -> bool:
    """Return True for "npugraphs", and for a call, a lambda or an imported object, which is probably such a backend."""
    origin = site.values.assigned_value(backend)
    if isinstance(origin, ast.Constant):
        return origin.value == "npugraphs"
    return isinstance(origin, ast.Call | ast.Lambda) or site.qualified_name(origin) is not None
