"""Replace torch_mlu's former API in scripts for its older releases.

     import torch
     import torch_mlu
    -import torch_mlu.core.mlu_model as ct
    -ct.set_device(0)
    +torch.mlu.set_device(0)
    -model = net.to(ct.mlu_device())
    +model = net.to('mlu')

Current releases have no `torch_mlu.core.mlu_model`; set_device, synchronize and the like are in torch.mlu now. Names
without a counterpart keep the import and are reported.
"""

from __future__ import annotations

import ast

from viaduct.cards import MLU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._imports import drop_alias

rule = Rule(__name__, target_needs="plugin", spec_rows=("6",), targets=("mlu",))

FORMER_PACKAGE = f"{MLU.plugin}.core"
FORMER_MODULE = f"{FORMER_PACKAGE}.mlu_model"
SAME_NAMES = ("set_device", "synchronize", "device_count", "current_device", "is_available")
REPLACED_NAMES = {f"{FORMER_MODULE}.{name}" for name in (*SAME_NAMES, "mlu_device")}


@rule.call(*(f"{FORMER_MODULE}.{name}" for name in SAME_NAMES))
def replace_function(site: Site) -> None:
    if is_replaced(site):
        name = site.name.rpartition(".")[2]
        site.rename(f"{site.file.names.local_name('torch')}.mlu.{name}")
        site.report_change(f"{name} is now torch.mlu's", zh=f"{name} 改用 torch.mlu")


@rule.call(f"{FORMER_MODULE}.mlu_device")
def replace_device(site: Site) -> None:
    if is_replaced(site):
        site.edit.replace_node(site.node, "'mlu'")
        site.report_change("mlu_device() becomes 'mlu'", zh="mlu_device() 替换为 'mlu'")


def is_replaced(site: Site) -> bool:
    """Return True for a call of one of REPLACED_NAMES, outside f-strings, in a file that imports torch."""
    is_call = site.name in REPLACED_NAMES and isinstance(site.node, ast.Call)
    return is_call and site.is_editable and site.file.names.local_name("torch") is not None


@rule.use(f"{FORMER_PACKAGE}.*")
def report_removed(site: Site) -> None:
    """Report a name of the former package that is not replaced."""
    if not is_replaced(site):
        site.request_review(
            f"current releases of {MLU.plugin} have no {site.name}: check whether it is needed",
            zh=f"当前版本的 {MLU.plugin} 已没有 {site.name}:请确认是否需要",
        )


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=(FORMER_MODULE, FORMER_PACKAGE))
def drop_import(site: Site) -> None:
    """Remove the import of the former module if none of its names is used any more."""
    base = f"{site.node.module}." if isinstance(site.node, ast.ImportFrom) else ""
    # `import torch_mlu.core.mlu_model` without `as` stays, since it also imports torch_mlu.
    aliases = [alias for alias in site.node.names if base + alias.name == FORMER_MODULE and (alias.asname or base)]
    if not aliases or is_still_used(site):
        return
    if len(site.node.names) == 1:
        site.edit.remove_statement(site.node)
    else:
        drop_alias(site, site.node, aliases[0])
    site.report_change(f"{FORMER_MODULE} is not imported any more", zh=f"不再导入 {FORMER_MODULE}")


def is_still_used(site: Site) -> bool:
    """Return True if the file uses a name of the former module where the rule does not replace it."""
    index = site.file.index
    others = (name for name in (*index.calls, *index.references) if name not in REPLACED_NAMES)
    if not site.file.names.local_name("torch") or any(f"{name}.".startswith(f"{FORMER_MODULE}.") for name in others):
        return True
    calls = [call for name in REPLACED_NAMES for call in index.calls.get(name, [])]
    return any(name in index.references for name in REPLACED_NAMES) or any(map(site.source.is_in_f_string, calls))
