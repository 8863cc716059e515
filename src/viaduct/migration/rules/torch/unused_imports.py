"""Remove imports from torch.cuda that their file uses no more.

     import torch
    -from torch.cuda.amp import GradScaler
     from accelerator_device import accelerator
     scaler = accelerator.GradScaler()

Imports in an `__init__.py`, and of a name that is also in quotes in the file (as in `__all__`), stay, since other files
may use them.
"""

from __future__ import annotations

import ast

from viaduct.migration.helper_cell import find_pasted_helper
from viaduct.migration.helper_location import HELPER_OBJECT
from viaduct.migration.imports import find_used_names
from viaduct.migration.rule import Rule, Site

rule = Rule(
    __name__,
    target_needs="plugin",
    spec_rows=("P2",),
    targets=("any",),
    completes_other_rules=True,  # their edits may leave unused imports
    former_names=("any_unused_imports",),
    runs_last=True,
)


@rule.node(ast.ImportFrom, only_if_file_contains=("cuda",))
def remove_unused(site: Site) -> None:
    module = site.node.module or ""
    is_of_torch = module == "torch" or f"{module}.".startswith("torch.cuda.")
    if site.node.level or not is_of_torch or site.file.path.endswith("__init__.py") or not has_helper(site):
        return
    unused = [alias for alias in site.node.names if is_unused(site, alias)]
    if not unused:
        return
    kept = [ast.unparse(alias) for alias in site.node.names if alias not in unused]
    if kept:
        site.edit.replace_node(site.node, f"from {module} import {', '.join(kept)}")
    else:
        site.edit.remove_statement(site.node)
    names = ", ".join(alias.name for alias in unused)
    site.report_change(f"this file no longer uses {names} of {module}", zh=f"本文件不再使用 {module} 的 {names}")


def is_unused(site: Site, alias: ast.alias) -> bool:
    """Return True for a name that the file neither uses nor has in quotes; names of torch other than `cuda` stay."""
    name = alias.asname or alias.name
    if site.node.module == "torch" and alias.name != "cuda":
        return False
    is_quoted = any(f"{quote}{name}{quote}" in site.source.text for quote in "\"'")
    return alias.name != "*" and name not in find_used_names(site.file) and not is_quoted


def has_helper(site: Site) -> bool:
    """Return True if the file imports `accelerator` from the helper file, or contains a pasted copy of the helper."""
    file = site.file
    full = f"{file.project.helper_module_of(file.path)}.{HELPER_OBJECT}"
    return file.names.local_name(full) is not None or find_pasted_helper(site.source.tree) is not None
