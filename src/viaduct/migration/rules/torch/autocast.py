"""Autocast for the card.

     import torch
    +import torch_npu
    -with torch.autocast(device_type="cuda", dtype=torch.float16):
    +with torch.autocast(device_type="npu", dtype=torch.float16):
         pass

`torch.autocast`, `torch.amp.autocast`, `torch.amp.GradScaler` and the decorators `custom_fwd` and `custom_bwd` are
told their device by a string, first or as `device_type` or `device`. A device that is chosen at run time is not
theirs to change. `torch.amp.GradScaler()` without one means CUDA, so the card is named.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import strings
from viaduct.migration.targets import card

rule = Rule(__name__, spec="P11 6", kind="mandatory", targets=("npu", "mlu"))

AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
SCALERS = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
CUSTOM = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")


@rule.call(*AUTOCAST)
def enter(site: Site) -> None:
    name_device(site, site.argument("device_type", 0))


@rule.call(*CUSTOM)
def decorate(site: Site) -> None:
    name_device(site, site.argument("device_type"))


@rule.call(*SCALERS)
def scale(site: Site) -> None:
    device = site.argument("device", 0)
    if device is not None or site.has_unpacked or not site.editable:
        name_device(site, device)
        return
    target = card(site.options)
    site.edit.add_argument(site.node, f'device="{target.device}"')
    site.changed(
        f"GradScaler means CUDA unless told: {target.device}", zh=f"GradScaler 默认为 CUDA,改为 {target.device}"
    )


def name_device(site: Site, device: ast.expr | None) -> None:
    """The string in place, with its own quotes."""
    target = card(site.options)
    for text in strings(device):
        kind, colon, index = str(text.value).partition(":")
        written = site.text(text) if not site.source.in_f_string(text) else ""
        if kind == "cuda" and written[-1:] in ('"', "'") and written[1:-1] == text.value:
            site.edit.node(text, f"{written[0]}{target.device}{colon}{index}{written[-1]}")
            site.changed(f"mixed precision on the {target.title}", zh=f"混合精度改用 {target.title}")
