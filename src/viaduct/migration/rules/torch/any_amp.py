"""Take mixed precision from the available card.

     import torch
    -with torch.cuda.amp.autocast(enabled=mixed):
    +from accelerator_device import accelerator
    +with accelerator.autocast(enabled=mixed):
         loss = model(batch)

The helper's autocast and GradScaler have the arguments of torch.cuda.amp's; `torch.autocast("cuda", …)` and
`torch.amp.GradScaler("cuda", …)` lose the device. Without a card both are off, as torch.cuda.amp's are without CUDA.
In `"cuda" if … else "cpu"` the text "cuda" becomes `accelerator.card()`, the available card; without one that is CUDA
again, since the CPU's own mixed precision would not be off. Another device type that is decided at run time is left as
written: it follows the device.
"""

from __future__ import annotations

import ast

from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._annotations import is_in_annotation
from viaduct.migration.rules.torch._device_texts import strings
from viaduct.migration.rules.torch._helper import OWN, replace_by_helper
from viaduct.migration.targets import helper

rule = Rule(__name__, spec="P11", kind="mandatory", targets=("any",))
EXAMPLE_OPTIONS = {"to": "any"}

AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
SCALER = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
FIRST = {**dict.fromkeys(AUTOCAST, "device_type"), **dict.fromkeys(SCALER, "device")}
ORDER = ("device_type", "dtype", "enabled", "cache_enabled")


@rule.call(*OWN)
def replace_cuda_amp(site: Site) -> None:
    replace_by_helper(site, site.node.func, OWN[site.name])


@rule.reference(*OWN)
def replace_reference(site: Site) -> None:
    """Replace a class that is passed on; in an annotation it stays, in isinstance it needs manual review."""
    if is_in_annotation(site.source, site.node):
        return
    around = [site.node, *site.source.ancestors(site.node)]
    if any(isinstance(parent, ast.Call) and site.text(parent.func) == "isinstance" for parent in around):
        site.manual(
            "each card has a class of its own: check for their common base, torch.amp.GradScaler or torch.autocast",
            zh="各加速卡有各自的类:请改为判断公共基类 torch.amp.GradScaler 或 torch.autocast",
        )
        return
    replace_by_helper(site, site.node, OWN[site.name])


@rule.call(*AUTOCAST, *SCALER)
def replace_named(site: Site) -> None:
    device = site.argument(FIRST[site.name], 0)
    default = device is None and site.name in SCALER and not site.has_unpacked
    if not default and not is_literal_in(device, "cuda"):
        replace_chosen(site, device)
        return
    if not site.editable or site.has_unpacked:
        site.manual(
            "this names CUDA: take autocast or GradScaler from the helper",
            zh="此处指定了 CUDA:请改用辅助模块的对应函数",
        )
        return
    new = f"{helper(site)}.{'autocast' if site.name in AUTOCAST else 'GradScaler'}"
    site.rename(new)
    if device is not None:
        drop_device(site, device)
    site.changed(f"{site.name} becomes {new}, for the available card", zh=f"{site.name} 替换为 {new}")


@rule.call("torch.amp.custom_fwd", "torch.amp.custom_bwd")
def replace_decorator(site: Site) -> None:
    replace_chosen(site, site.argument("device_type"))


def replace_chosen(site: Site, device: ast.expr | None) -> None:
    """Replace the text "cuda" in a value such as `"cuda" if args.gpus else "cpu"`."""
    for text in strings(device):
        if is_literal_in(text, "cuda") and not site.source.in_f_string(text):
            site.work.seen[("any", text)] = None
            site.edit.node(text, f"{helper(site)}.card()")
            site.changed("mixed precision on the available card", zh="混合精度改用现有的加速卡", node=text)


def drop_device(site: Site, device: ast.expr) -> None:
    """Remove the device argument; name the positional arguments of autocast behind it."""
    held: ast.expr | ast.keyword = next((keyword for keyword in site.node.keywords if keyword.value is device), device)
    if site.name in AUTOCAST:
        slots, _ = site.source.slots(site.source.opening(site.node))
        for name, value in list(zip(ORDER, site.node.args, strict=False))[1:]:
            site.edit.insert(slots[site.argument_index(value)].start, f"{name}=")
    site.remove_arguments([held])
