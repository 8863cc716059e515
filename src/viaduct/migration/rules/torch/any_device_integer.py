"""Replace a device that is given as an integer by the available card.

     import torch
    -model = model.to(local_rank)
    +from accelerator_device import accelerator
    +model = model.to(accelerator.device(local_rank))

PyTorch takes an integer for a CUDA device, which fails without CUDA. The rule edits literals, names that are usual for
a card's number (`gpu`, `local_rank`), and expressions such as `int(os.environ["LOCAL_RANK"])`. If such a value is a
torch.device at run time, `accelerator.device` returns it unchanged.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import branches, plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_numbers import (
    is_device_number,
    is_sometimes_device_number,
    may_be_torch_object,
)
from viaduct.migration.rules.torch._devices import is_method_of_project
from viaduct.migration.rules.torch._helper import report_if_in_torchscript
from viaduct.migration.targets import import_helper

rule = Rule(__name__, requirement="device_strings", rows=("P8", "P27"), targets=("any",))


@rule.call("torch.device")
def replace_torch_device(site: Site) -> None:
    """Replace `torch.device(number)` by `accelerator.device(number)`."""
    if (
        len(site.node.args) == 1
        and not site.node.keywords
        and is_device_number(site, site.node.args[0])
        and site.is_editable
    ):
        site.rename(f"{import_helper(site)}.device")
        report_number(site)


@rule.method("to")
def replace_in_to(site: Site) -> None:
    """Replace the number in `.to(number)`; report it if the receiver may be no tensor or module."""
    receiver = site.node.func.value
    value = site.argument("device", 0)
    if value is None or is_method_of_project(site, receiver, "to"):
        return
    if may_be_torch_object(site, receiver):
        wrap_number(site, value)
    elif is_device_number(site, value):
        site.request_review(
            f"if this moves a tensor or a module, write .to(accelerator.device({site.text_of(value)}))",
            zh=f"若此处移动的是张量或模块,请改为 .to(accelerator.device({site.text_of(value)}))",
        )


@rule.method("to_empty", "new_tensor", "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided")
def replace_in_method(site: Site) -> None:
    """Replace `device=number` in methods that create a tensor from another."""
    keyword = site.keyword("device")
    if keyword is not None and not is_method_of_project(site, site.node.func.value, site.name):
        wrap_number(site, keyword.value)


@rule.call("torch.*")
def replace_in_function(site: Site) -> None:
    """Replace `device=number` and `map_location=number` in torch's functions."""
    for keyword in site.node.keywords:
        if keyword.arg in ("device", "map_location") and site.name != "torch.device":
            wrap_number(site, keyword.value)


def wrap_number(site: Site, value: ast.expr) -> None:
    """Replace a number by `accelerator.device(number)`; report a variable that is not always a number."""
    for node in branches(value):
        if (
            is_device_number(site, node)
            and not site.source.is_in_f_string(node)
            and not report_if_in_torchscript(site, node)
        ):
            site.edit.replace_node(node, f"{import_helper(site)}.device({site.text_of(node)})")
            report_number(site)
        elif is_sometimes_device_number(site, node):
            name = plain_name(node)
            site.request_review(
                f"{name} is a number in one place and a device in another: pass accelerator.device({name})",
                zh=f"{name} 有时是编号,有时是设备:请改为 accelerator.device({name})",
            )


def report_number(site: Site) -> None:
    site.report_change("the number now means the available card", zh="该编号指现有的加速卡")
