"""Replace CUDA by the card in autocast and GradScaler.

     import torch
    +import torch_npu
    -with torch.autocast(device_type="cuda", dtype=torch.float16):
    +with torch.autocast(device_type="npu", dtype=torch.float16):
         pass

The rule edits the device of `torch.autocast`, `torch.amp.autocast`, `torch.amp.GradScaler` and the decorators
`custom_fwd` and `custom_bwd`: a string, or strings in the branches of a conditional expression. Any other device that
is chosen at run time stays. `torch.amp.GradScaler()` gets a device, since its default is CUDA.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import string_branches
from viaduct.migration.rules.torch._mixed_precision import AUTOCAST_NAMES, CUSTOM_DECORATORS, SCALER_NAMES

rule = Rule(__name__, requirement="amp", rows=("P11", "6"), targets=("npu", "mlu"))


@rule.call(*AUTOCAST_NAMES, *CUSTOM_DECORATORS)
def replace_device_type(site: Site) -> None:
    replace_device(site, site.argument("device_type", 0 if site.name in AUTOCAST_NAMES else -1))


@rule.call(*SCALER_NAMES)
def replace_scaler_device(site: Site) -> None:
    device = site.argument("device", 0)
    if device is not None or site.has_unpacked_arguments or not site.is_editable:
        replace_device(site, device)
        return
    card = site.target.card
    site.edit.add_argument(site.node, f'device="{card.device}"')
    site.report_change(
        f"GradScaler's default device is CUDA: device={card.device}", zh=f"GradScaler 默认为 CUDA,改为 {card.device}"
    )


def replace_device(site: Site, device: ast.expr | None) -> None:
    """Replace the device in a string; a string with a prefix or escapes stays."""
    card = site.target.card
    for text in string_branches(device):
        value = str(text.value)
        kind, colon, index = value.partition(":")
        code = site.text_of(text) if not site.source.is_in_f_string(text) else ""
        quote = code[-1:]
        if kind == "cuda" and code == f"{quote}{value}{quote}":
            site.edit.replace_node(text, f"{quote}{card.device}{colon}{index}{quote}")
            site.report_change(f"mixed precision now runs on the {card.title}", zh=f"混合精度改用 {card.title}")
