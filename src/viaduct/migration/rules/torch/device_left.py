"""Report texts that look like a CUDA device and that no other rule has dealt with.

     import torch
     KINDS = ("cuda", "cpu")
     names = "cuda:0,cuda:1".split(",")

Whether such a text becomes a device is not seen: it is left as it is. Keys, words that are printed or compared, and
texts for other libraries are not reported.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._devices import NOT_DEVICES, is_foreign
from viaduct.migration.rules.torch._options import is_default_of_option
from viaduct.migration.targets import card

rule = Rule(__name__, spec="P8 P9 6", kind="report", targets=("npu", "mlu", "any"), after=("device_string",), last=True)

TEXT = re.compile(r"cuda(?::\d*)?(?:,\s*cuda(?::\d+)?)*")
KEYED = ("get", "pop", "setdefault", "hasattr", "getattr", "delattr", "print", "add", "skipif")


@rule.node(ast.Constant, words=('"cuda', "'cuda"))
def name_text(site: Site) -> None:
    """Report a CUDA device in a text that no other rule has explained."""
    value = site.node.value
    if not isinstance(value, str) or not TEXT.fullmatch(value) or not site.editable or not is_in_torch_program(site):
        return
    if is_explained(site) or is_default_of_option(site, site.node) or is_named(site):
        return
    words = "accelerator.name()" if site.options.to == "any" else card(site.options).device
    site.manual(
        f"{value!r} looks like a device, and is not seen to be used as one: left as it is; if it is one, write {words}",
        zh=f"{value!r} 看似设备,但未能确认其用途:保持不变;若是设备,请改为 {words}",
        risk="low",
    )


@rule.node(ast.Call, words=(".cuda if",))
def name_chosen_method(site: Site) -> None:
    """`(x.cuda if use else x.cpu)()`."""
    chosen = site.node.func
    if isinstance(chosen, ast.IfExp) and any(
        getattr(item, "attr", "") == "cuda" for item in (chosen.body, chosen.orelse)
    ):
        device = "accelerator.device()" if site.options.to == "any" else repr(card(site.options).device)
        site.manual(
            f"a method is chosen here, .cuda being one: write .to({device}) for it",
            zh=f"此处选择的方法之一是 .cuda:请改为 .to({device})",
        )


def is_explained(site: Site) -> bool:
    """Return True if the code around a text explains it: a key, a comparison, a text for itself, another library's."""
    node, parent = site.node, site.source.parents[site.node]
    if isinstance(parent, ast.Expr | ast.Compare | ast.MatchValue):
        return True
    if isinstance(parent, ast.Dict):
        return True  # its values are named by device_string where they look like devices
    above = [parent, *site.source.ancestors(parent)]
    if any(isinstance(outer_node, ast.Subscript) and within(node, outer_node.slice) for outer_node in above):
        return True
    calls = [ancestor for ancestor in above if isinstance(ancestor, ast.Call)]
    names = [site.qualified(call.func) or "" for call in calls]
    if any(is_foreign(name) or name.startswith(NOT_DEVICES) for name in names):
        return True
    nearest = calls[0].func if calls and calls[0] is parent else None
    return getattr(nearest, "attr", getattr(nearest, "id", "")) in KEYED


def within(node: ast.AST, held: ast.AST) -> bool:
    """Return True if a node stands within another."""
    return any(inner is node for inner in ast.walk(held))


def is_named(site: Site) -> bool:
    """Return True if a finding other than advice stands on this line already."""
    line = site.work.lines[site.node.lineno - 1]
    return any(finding.line == line and finding.status != "advice" for finding in site.work.findings)
