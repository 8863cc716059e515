"""Report strings that look like a CUDA device, on lines that no other rule has edited or reported.

     import torch
     KINDS = ("cuda", "cpu")
     names = "cuda:0,cuda:1".split(",")

The file does not show whether such a string is used as a device. Keys, strings that are printed or compared, and
strings for other libraries are not reported.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import branches, is_reported, literal_text
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._devices import is_no_device_or_reported
from viaduct.migration.rules.torch._options import is_in_add_argument

rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P8", "P9", "6"),
    category="report",
    targets=ALL_TARGETS,
    runs_last=True,
)

OTHERS = r"(?:cpu|mps|meta)"
DEVICES_TEXT = re.compile(
    rf"(?:{OTHERS}[,\s]+)*cuda(?::\d*)?(?:[,\s]+(?:cuda(?::\d+)?|{OTHERS}))*"
)  # "cuda:0,cuda:1", "cpu cuda"


@rule.node(ast.Constant, only_if_file_contains=("cuda",))
def report_text(site: Site) -> None:
    """Report a string that looks like a CUDA device, unless the code around it explains it."""
    value = site.node.value
    if not DEVICES_TEXT.fullmatch(literal_text(site.node)) or not site.is_editable or not is_in_torch_program(site):
        return
    if is_no_device_or_reported(site) or is_in_add_argument(site, site.node) or is_reported(site):
        return
    new = "accelerator.name()" if site.target.is_any_card else value.replace("cuda", site.target.card.device)
    site.request_review(
        f"{value!r} looks like a device, but is not known to be used as one: unchanged; if it is one, write {new}",
        zh=f"{value!r} 看似设备,但未能确认其用途:保持不变;若是设备,请改为 {new}",
        risk="low",
    )


@rule.node(ast.Call, only_if_file_contains=(".cuda if",))
def report_chosen_method(site: Site) -> None:
    """Report `(x.cuda if use else x.cpu)()`."""
    methods = branches(site.node.func)
    if len(methods) > 1 and any(getattr(method, "attr", "") == "cuda" for method in methods):
        device = "accelerator.device()" if site.target.is_any_card else repr(site.target.card.device)
        site.request_review(
            f"one of these methods is .cuda: write .to({device}) instead",
            zh=f"此处选择的方法之一是 .cuda:请改为 .to({device})",
        )
