"""Replace CUDA by the card in autocast and GradScaler.

     import torch
    +import torch_npu
    -with torch.autocast(device_type="cuda", dtype=torch.float16):
    +with torch.autocast(device_type="npu", dtype=torch.float16):
         pass

The rule edits the device of `torch.autocast`, `torch.amp.autocast`, `torch.amp.GradScaler` and the decorators
`custom_fwd` and `custom_bwd`: a string, or strings in the branches of a conditional expression. Any other device that
is chosen at run time stays; unpacked arguments need manual review. `torch.amp.GradScaler()` gets a device, since its
default is CUDA.

With `--to any` the helper module accelerator_device, which the migration adds to the project, has autocast and
GradScaler. On a machine without a card both are disabled. In the branches of a conditional expression the text "cuda"
becomes `accelerator.card()`, which is "cuda" on a machine without a card: "cpu" would enable the CPU's mixed precision.

     import torch
    -with torch.autocast("cuda", torch.float16):
    +from accelerator_device import accelerator
    +with accelerator.autocast(dtype=torch.float16):
         pass
"""

from __future__ import annotations

import ast

from viaduct.migration.device_texts import rename_cuda, string_branches
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._collectives import has_unpacked_key
from viaduct.migration.targets import import_helper

rule = Rule(
    __name__, target_needs="amp", spec_rows=("P11", "6"), targets=ALL_TARGETS, former_names=("any_amp",), after=("amp",)
)

AUTOCAST_NAMES = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
SCALER_NAMES = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
CUSTOM_DECORATORS = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")
AUTOCAST_PARAMETERS = ("device_type", "dtype", "enabled", "cache_enabled")  # parameters of torch.autocast


@rule.call(*AUTOCAST_NAMES)
def replace_autocast(site: Site) -> None:
    device = site.argument("device_type", 0)
    if device is None:
        report_hidden_device(site, "device_type")
    replace_device(site, device)


@rule.call(*SCALER_NAMES)
def replace_scaler(site: Site) -> None:
    """Replace the device of a GradScaler, by default CUDA."""
    device = site.argument("device", 0)
    if device is not None:
        replace_device(site, device)
    elif site.has_unpacked_arguments:
        report_hidden_device(site, "device")
    elif site.target.is_any_card:
        use_helper(site, None)
    elif site.is_editable:
        card = site.target.card
        site.edit.add_argument(site.node, f'device="{card.device}"')
        site.report_change(
            f"GradScaler's default device is CUDA: device={card.device}",
            zh=f"GradScaler 默认为 CUDA,改为 {card.device}",
        )


@rule.call(*CUSTOM_DECORATORS)
def replace_decorator(site: Site) -> None:
    replace_branches(site, site.argument("device_type"))


def report_hidden_device(site: Site, parameter: str) -> None:
    """Report unpacked arguments, unless the file shows their device, which other rules edit or report."""
    if site.has_unpacked_arguments and not has_unpacked_key(site, parameter):
        message = site.target.select_message(
            (
                f"arguments are unpacked here: make sure that {parameter} is {{card.device}}",
                f"此处参数为解包形式:请确认 {parameter} 为 {{card.device}}",
            ),
            (
                "arguments are unpacked here: use accelerator.autocast or accelerator.GradScaler of the helper",
                "此处参数为解包形式:请改用辅助模块的 accelerator.autocast 或 accelerator.GradScaler",
            ),
        )
        site.request_review(*message)


def replace_device(site: Site, device: ast.expr | None) -> None:
    """Replace the device in a string, or with `--to any` the call for "cuda" by a call of the helper."""
    if site.target.is_any_card and is_literal_in(device, "cuda"):
        use_helper(site, device)
    else:
        replace_branches(site, device)


def replace_branches(site: Site, device: ast.expr | None) -> None:
    """Replace the device in a string, also in a value such as `"cuda" if args.gpus else "cpu"`.

    With `--to any` only the string "cuda" is replaced.
    """
    for text in string_branches(device):
        if site.target.is_any_card:
            is_replaced = is_literal_in(text, "cuda") and not site.source.is_in_f_string(text)
            new = f"{import_helper(site)}.card()" if is_replaced else None
        else:
            new = rename_cuda(site.source, text, site.target.card.device)
        if new is not None:
            site.edit.replace_node(text, new)
            message = site.target.select_message(
                ("mixed precision now runs on the {card.title}", "混合精度改用 {card.title}"),
                ("mixed precision now uses the available card", "混合精度改用现有的加速卡"),
            )
            site.report_change(*message, node=text)


def use_helper(site: Site, device: ast.expr | None) -> None:
    """Replace the call by one of the helper's autocast or GradScaler, without the device."""
    if not site.is_editable or site.has_unpacked_arguments:
        site.request_review(
            "this names CUDA: use accelerator.autocast or accelerator.GradScaler of the helper",
            zh="此处指定了 CUDA:请改用辅助模块的 accelerator.autocast 或 accelerator.GradScaler",
        )
        return
    is_autocast = site.name in AUTOCAST_NAMES
    new = f"{import_helper(site)}.{'autocast' if is_autocast else 'GradScaler'}"
    site.rename(new)
    if device is not None:
        if is_autocast:  # the device, the first argument, is removed, so the others lose their positions
            for name, value in zip(AUTOCAST_PARAMETERS[1:], site.node.args[1:], strict=False):
                site.pass_by_keyword(value, name)
        keywords = [keyword for keyword in site.node.keywords if keyword.value is device]
        site.remove_arguments([*keywords] or [device])
    site.report_change(f"{site.name} becomes {new}, for the available card", zh=f"{site.name} 替换为 {new}")
