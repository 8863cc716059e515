"""Say how to recognise that the memory is full on every card.

     import torch
     try:
         step()
     except RuntimeError as error:
         if "CUDA out of memory" not in str(error):
             raise

The message of another card does not say CUDA, so that what the script does about it would not happen. All cards raise
torch.OutOfMemoryError (since torch 2.5; torch.cuda.OutOfMemoryError before), and their messages have "out of memory".
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="P6", kind="advice", targets=("npu", "mlu", "any"), patch=True, last=True)

MESSAGE = re.compile(r"cuda(?: error:)? out of memory", re.IGNORECASE)
ASKS = ("startswith", "find", "count", "search", "match")


@rule.node(ast.Constant, words=("out of memory",))
def advise(site: Site) -> None:
    """Advise against searching an error for CUDA's message."""
    if not isinstance(site.node.value, str) or not MESSAGE.match(site.node.value) or not is_searched(site):
        return
    site.advice(
        "another card's message does not say CUDA: catch torch.OutOfMemoryError (since torch 2.5; "
        "torch.cuda.OutOfMemoryError before), or search for 'out of memory' only",
        zh="其他加速卡的报错不含 CUDA:请捕获 torch.OutOfMemoryError(torch 2.5 起;之前为 torch.cuda.OutOfMemoryError),"
        "或只查找 'out of memory'",
        risk="medium",
    )


def is_searched(site: Site) -> bool:
    """Return True if a text is searched for it; one that is printed is the script's own."""
    parent = site.source.parents[site.node]
    return isinstance(parent, ast.Compare) or (
        isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") in ASKS
    )
