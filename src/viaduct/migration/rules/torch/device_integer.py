"""Use the card where a device is given as a number.

     import torch
    +import torch_npu
     def work(rank: int, model: torch.nn.Module) -> None:
         model = model.to(rank)
         x = torch.zeros(3, device=0)

A number means CUDA in PyTorch, and the NPU or MLU after the import of torch_npu or torch_mlu. So `.to(0)`,
`device=rank` and `torch.device(args.gpu)` stay, and only the import is added. Numbers are literals, int(), ranks of
torch.distributed, options of type int, the worker's index in mp.spawn, variables with such values, and parameters and
attributes with a usual name: `local_rank`, `rank`, `gpu`, `gpu_id`.

With `--to any` a number becomes a device of the available card, since a number fails on a machine without CUDA and
plug-in. If the value is a torch.device at run time, `accelerator.device` returns it unchanged:

     import torch
    -model = model.to(local_rank)
    +from accelerator_device import accelerator
    +model = model.to(accelerator.device(local_rank))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import branches, method_name, plain_name
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._device_numbers import (
    has_device_number_name,
    is_device_number,
    is_sometimes_device_number,
    may_be_torch_object,
)
from viaduct.migration.rules.torch._devices import is_method_of_project
from viaduct.migration.rules.torch._helper import report_if_in_torchscript
from viaduct.migration.rules.torch._plugin_use import is_plugin_imported_elsewhere

rule = Rule(
    __name__,
    target_needs="device_strings",
    spec_rows=("P8", "P27", "6"),
    targets=ALL_TARGETS,
    former_names=("any_device_integer",),
)


@rule.node(ast.Call, only_if_file_contains=(".to(", "device", "map_location"))
def replace_numbers(site: Site) -> None:
    """Replace the numbers among the arguments that PyTorch takes for a device, or only request the plug-in's import."""
    if not is_in_torch_program(site):
        return
    for part in (part for value in find_device_arguments(site, site.node) for part in branches(value)):
        if is_device_number(site, part):
            replace_number(site, part)
        elif is_sometimes_device_number(site, part):
            handle_sometimes_number(site, part)


def find_device_arguments(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments that PyTorch takes for a device."""
    name, method = site.qualified_name(call.func) or "", method_name(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if name == "torch.device":
        yield from call.args[:1] if len(call.args) == 1 else []
    elif name.startswith("torch."):
        yield from (keyword.value for keyword in call.keywords if keyword.arg in ("device", "map_location"))
    elif method.startswith("new_") or method in ("to", "to_empty"):
        if is_method_of_project(site, receiver, method):
            return
        yield from call.args[:1] if method == "to" else []
        yield from (keyword.value for keyword in call.keywords if keyword.arg == "device")


def replace_number(site: Site, number: ast.expr) -> None:
    """Replace a number by the target's device; report a `.to(number)` of an object that may be no tensor or module."""
    if may_be_other_object(site):
        if site.target.is_any_card:
            text = site.text_of(number)
            site.request_review(
                f"if this moves a tensor or a module, write .to(accelerator.device({text}))",
                zh=f"若此处移动的是张量或模块,请改为 .to(accelerator.device({text}))",
            )
        elif has_device_number_name(number) or site.keyword("device") is not None:
            request_plugin(site)
        return
    request_plugin(site)
    if site.source.is_in_f_string(number) or report_if_in_torchscript(site, number):
        return
    new = site.target.render_numbered_device(site, number)
    if new != site.text_of(number):
        is_constructor = site.qualified_name(site.node.func) == "torch.device"
        site.edit.replace_node(site.node if is_constructor else number, new)
        site.report_change("the number now means the available card", zh="该编号指现有的加速卡")


def may_be_other_object(site: Site) -> bool:
    """Return True for the `.to` of an object that may be no tensor or module."""
    return method_name(site.node) == "to" and not may_be_torch_object(site, site.node.func.value)


def handle_sometimes_number(site: Site, name: ast.expr) -> None:
    """Request the plug-in's import for a name that is a number in one place and something else in another.

    With `--to any` report the name.
    """
    request_plugin(site)
    if site.target.is_any_card:
        text = plain_name(name)
        site.request_review(
            f"{text} is a number in one place and a device in another: pass accelerator.device({text})",
            zh=f"{text} 有时是编号,有时是设备:请改为 accelerator.device({text})",
        )


def request_plugin(site: Site) -> None:
    """Request the plug-in's import, unless another file of the project imports it; `--to any` needs no import."""
    if not site.target.is_any_card and not is_plugin_imported_elsewhere(site):
        site.target.require_plugin(site)
