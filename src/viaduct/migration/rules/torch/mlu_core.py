"""Take the place of torch_mlu's old API in scripts that were migrated long ago.

     import torch
     import torch_mlu
    -import torch_mlu.core.mlu_model as ct
    -ct.set_device(0)
    +torch.mlu.set_device(0)
    -model = net.to(ct.mlu_device())
    +model = net.to('mlu')

`torch_mlu.core.mlu_model` is gone from current releases. Its device, set_device, synchronize and the like have their
place in torch.mlu. What has none, such as the number of cores for a compiled graph, keeps the import and is named.
"""

from __future__ import annotations

import ast

from viaduct.cards import MLU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _imports as imports

rule = Rule(__name__, spec="6", kind="mandatory", targets=("mlu",))
EXAMPLE_OPTIONS = {"to": "mlu"}

PACKAGE = f"{MLU.module}.core"
HOME = f"{PACKAGE}.mlu_model"
SAME = ("set_device", "synchronize", "device_count", "current_device", "is_available")
LOCAL = {f"{HOME}.{name}" for name in (*SAME, "mlu_device")}


@rule.call(*(f"{HOME}.{name}" for name in SAME))
def rename(site: Site) -> None:
    """Replace a function of the former package by that of torch.mlu."""
    if site.editable and (root := site.work.names.local("torch")):
        name = site.name.rpartition(".")[2]
        site.rename(f"{root}.mlu.{name}")
        site.changed(f"{name} is torch.mlu's", zh=f"{name} 改用 torch.mlu")


@rule.call(f"{HOME}.mlu_device")
def device(site: Site) -> None:
    """Replace `mlu_device()` by the device's name."""
    if site.editable:
        site.edit.node(site.node, "'mlu'")
        site.changed("mlu_device() becomes 'mlu'", zh="mlu_device() 替换为 'mlu'")


@rule.call(f"{PACKAGE}.*")
@rule.reference(f"{PACKAGE}.*")
def report_removed(site: Site) -> None:
    """Report a name of the former package that has no counterpart."""
    if site.name not in LOCAL or not isinstance(site.node, ast.Call) or not site.work.names.local("torch"):
        site.manual(
            f"{site.name} is gone from current releases of {MLU.module}: see whether it is needed",
            zh=f"当前版本的 {MLU.module} 已没有 {site.name}:请确认是否需要",
        )


@rule.node(ast.Import, ast.ImportFrom, words=(HOME, PACKAGE))
def drop_import(site: Site) -> None:
    """The import goes when nothing else is left of it."""
    base = f"{site.node.module}." if isinstance(site.node, ast.ImportFrom) else ""
    names = [alias for alias in site.node.names if base + alias.name == HOME and (alias.asname or base)]
    if not names or left_over(site):
        return
    if len(site.node.names) == 1:
        site.edit.remove_statement(site.node)
    else:
        imports.drop_alias(site, site.node, names[0])
    site.changed(f"nothing is left to import from {PACKAGE}", zh=f"不再需要导入 {PACKAGE}")


def left_over(site: Site) -> bool:
    """Something of the old module that has no place elsewhere."""
    index = site.work.index
    used = [*index.calls, *index.references]
    odd = [name for name in used if f"{name}.".startswith(f"{HOME}.") and name not in LOCAL]
    return bool(odd) or any(name in index.references for name in LOCAL) or not site.work.names.local("torch")
