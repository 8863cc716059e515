"""Advise how to recognise an out-of-memory error on every card.

     import torch
     try:
         step()
     except RuntimeError as error:
         if "CUDA out of memory" not in str(error):
             raise

The messages of other cards contain "out of memory", but not "CUDA". The MLU and newer releases of torch_npu raise
torch.OutOfMemoryError (torch.cuda.OutOfMemoryError before torch 2.5), older releases of torch_npu a RuntimeError.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import literal_text, method_name
from viaduct.migration.rule import Site, make_rule_on_migrated_code

rule = make_rule_on_migrated_code(__name__, spec_rows=("P6",), category="advice")

CUDA_MESSAGE = re.compile(r"cuda(?: error:)? out of memory", re.IGNORECASE)
SEARCH_METHODS = ("startswith", "find", "count", "search", "match")


@rule.node(ast.Constant, only_if_file_contains=("out of memory",))
def advise_search(site: Site) -> None:
    """Advise on a comparison of an error's text with CUDA's message."""
    parent = site.source.parents[site.node]
    is_search = isinstance(parent, ast.Call) and method_name(parent) in SEARCH_METHODS
    if CUDA_MESSAGE.match(literal_text(site.node)) and (is_search or isinstance(parent, ast.Compare)):
        site.advise(
            "messages of other cards do not say CUDA: search for 'out of memory' only, or catch torch.OutOfMemoryError "
            "(since torch 2.5; torch.cuda.OutOfMemoryError before), which older plug-ins do not raise",
            zh="其他加速卡的报错不含 CUDA:请只查找 'out of memory',或捕获 torch.OutOfMemoryError(torch 2.5 起;之前为 "
            "torch.cuda.OutOfMemoryError),但旧版插件不抛出该异常",
            risk="medium",
        )
