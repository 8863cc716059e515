"""Replace CUDA's mixed precision by that of the available card.

     import torch
    -with torch.cuda.amp.autocast(enabled=mixed):
    +from accelerator_device import accelerator
    +with accelerator.autocast(enabled=mixed):
         loss = model(batch)

The helper module accelerator_device, which the migration adds to the project, has autocast and GradScaler with the
arguments of torch.cuda.amp's. On a machine without a card both are disabled, as torch.cuda.amp's are without CUDA. In
`"cuda" if … else "cpu"` the text "cuda" becomes `accelerator.card()`, which is "cuda" on a machine without a card:
"cpu" would enable the CPU's mixed precision. Other device types that are decided at run time stay.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import mark_once
from viaduct.migration.predicates import is_in_annotation, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import string_branches
from viaduct.migration.rules.torch._helper import replace_by_helper
from viaduct.migration.rules.torch._mixed_precision import (
    AUTOCAST_NAMES,
    CUDA_AMP_NAMES,
    CUSTOM_DECORATORS,
    SCALER_NAMES,
)
from viaduct.migration.targets import import_helper

rule = Rule(__name__, requirement="amp", rows=("P11",), targets=("any",))

AUTOCAST_PARAMETERS = ("device_type", "dtype", "enabled", "cache_enabled")  # parameters of torch.autocast


@rule.call(*CUDA_AMP_NAMES)
def replace_cuda_amp(site: Site) -> None:
    replace_by_helper(site, site.node.func, CUDA_AMP_NAMES[site.name])


@rule.reference(*CUDA_AMP_NAMES)
def replace_reference(site: Site) -> None:
    """Replace a class that is passed on; report it in isinstance, and leave it in an annotation."""
    if is_in_annotation(site.source, site.node):
        return
    calls = (parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call))
    if any(site.text_of(call.func) == "isinstance" for call in calls):
        site.request_review(
            "each card has its own class: check for the common base class, torch.amp.GradScaler or torch.autocast",
            zh="各加速卡有各自的类:请改为判断公共基类 torch.amp.GradScaler 或 torch.autocast",
        )
        return
    replace_by_helper(site, site.node, CUDA_AMP_NAMES[site.name])


@rule.call(*AUTOCAST_NAMES, *SCALER_NAMES)
def replace_torch_amp(site: Site) -> None:
    """Replace an autocast or GradScaler for "cuda", which is also the default device of a GradScaler."""
    device = site.argument("device" if site.name in SCALER_NAMES else "device_type", 0)
    is_cuda_by_default = device is None and site.name in SCALER_NAMES and not site.has_unpacked_arguments
    if not is_cuda_by_default and not is_literal_in(device, "cuda"):
        replace_branches(site, device)
        return
    if not site.is_editable or site.has_unpacked_arguments:
        site.request_review(
            "this names CUDA: use accelerator.autocast or accelerator.GradScaler of the helper",
            zh="此处指定了 CUDA:请改用辅助模块的对应函数",
        )
        return
    new = f"{import_helper(site)}.{'autocast' if site.name in AUTOCAST_NAMES else 'GradScaler'}"
    site.rename(new)
    if device is not None:
        drop_device(site, device)
    site.report_change(f"{site.name} becomes {new}, for the available card", zh=f"{site.name} 替换为 {new}")


@rule.call(*CUSTOM_DECORATORS)
def replace_decorator(site: Site) -> None:
    replace_branches(site, site.argument("device_type"))


def replace_branches(site: Site, device: ast.expr | None) -> None:
    """Replace the text "cuda" in a value such as `"cuda" if args.gpus else "cpu"`."""
    for text in string_branches(device):
        if is_literal_in(text, "cuda") and not site.source.is_in_f_string(text):
            mark_once(site, "any", text)  # any_device_text then skips it
            site.edit.replace_node(text, f"{import_helper(site)}.card()")
            site.report_change("mixed precision now uses the available card", zh="混合精度改用现有的加速卡", node=text)


def drop_device(site: Site, device: ast.expr) -> None:
    """Remove the device argument; name the positional arguments of autocast after it."""
    keywords = [keyword for keyword in site.node.keywords if keyword.value is device]
    if site.name in AUTOCAST_NAMES:
        for name, value in [*zip(AUTOCAST_PARAMETERS, site.node.args, strict=False)][1:]:  # without the device
            site.pass_by_keyword(value, name)
    site.remove_arguments([*keywords] or [device])
