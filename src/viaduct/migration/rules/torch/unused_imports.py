"""Take away imports from torch.cuda that nothing uses any more.

     import torch
    -from torch.cuda.amp import GradScaler
     from accelerator_device import accelerator
     scaler = accelerator.GradScaler()

What the helper has taken over need not be imported. An import that other files may fetch from here, of an `__init__.py`
or whose name stands in quotes in the file (as in `__all__`), stays: it works on every machine.
"""

from __future__ import annotations

import ast

from viaduct.migration.helper_cell import find_pasted_helper
from viaduct.migration.imports import used_names
from viaduct.migration.neutral import NAME
from viaduct.migration.rule import Rule, Site

rule = Rule(
    __name__,
    spec="P2",
    kind="mandatory",
    targets=("any",),
    always=True,
    former=("any_unused_imports",),
    after=("cuda_api",),
    last=True,
)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.node(ast.ImportFrom, words=("cuda",))
def names(site: Site) -> None:
    if site.node.level or not is_cuda(site) or site.work.path.endswith("__init__.py") or not uses_helper(site):
        return
    gone = [alias for alias in site.node.names if is_spare(site, alias)]
    if not gone:
        return
    kept = [ast.unparse(alias) for alias in site.node.names if alias not in gone]
    if kept:
        site.edit.node(site.node, f"from {site.node.module} import {', '.join(kept)}")
    else:
        site.edit.remove_statement(site.node)
    said = ", ".join(alias.name for alias in gone)
    site.changed(f"{said} of {site.node.module} is not used any more", zh=f"不再使用 {site.node.module} 的 {said}")


def is_cuda(site: Site) -> bool:
    module = site.node.module or ""
    return module == "torch.cuda" or module.startswith("torch.cuda.") or module == "torch"


def is_spare(site: Site, alias: ast.alias) -> bool:
    name = alias.asname or alias.name
    if site.node.module == "torch" and alias.name != "cuda":
        return False
    quoted = any(f"{quote}{name}{quote}" in site.source.text for quote in "\"'")
    return alias.name != "*" and name not in used_names(site.work) and not quoted


def uses_helper(site: Site) -> bool:
    """Return True if the file uses the helper; in others nothing was taken over."""
    work = site.work
    full = f"{work.project.helper_of(work.path)}.{NAME}"
    return work.names.local(full) is not None or find_pasted_helper(site.source.tree) is not None
