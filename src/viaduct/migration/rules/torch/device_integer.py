"""Import torch_npu or torch_mlu in files that give a device as a number.

     import torch
    +import torch_npu
     def work(rank: int, model: torch.nn.Module) -> None:
         model = model.to(rank)
         x = torch.zeros(3, device=0)

A number means CUDA in PyTorch, and the NPU or MLU after the import of torch_npu or torch_mlu. So `.to(0)`,
`device=rank` and `torch.device(args.gpu)` stay, and only the import is added. Numbers are literals, int(), ranks of
torch.distributed, options of type int, the worker's index in mp.spawn, variables with such values, and parameters and
attributes with a usual name: `local_rank`, `rank`, `gpu`, `gpu_id`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import branches, method_name
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_numbers import (
    has_device_number_name,
    is_device_number,
    is_sometimes_device_number,
    may_be_torch_object,
)
from viaduct.migration.rules.torch._devices import is_method_of_project
from viaduct.migration.rules.torch._plugin_use import is_plugin_imported_elsewhere

rule = Rule(__name__, requirement="device_strings", rows=("P8", "6"), targets=("npu", "mlu"))


@rule.node(ast.Call, only_if_file_contains=(".to(", "device"))
def request_import(site: Site) -> None:
    """Request the plug-in's import if a device is a number and no other file of the project imports it."""
    if not is_in_torch_program(site) or is_plugin_imported_elsewhere(site):
        return
    parts = (part for value in device_arguments(site, site.node) for part in branches(value))
    if any(is_device_number(site, part) or is_sometimes_device_number(site, part) for part in parts):
        site.target.require_plugin(site)


def device_arguments(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments that PyTorch takes for a device."""
    name = site.qualified_name(call.func) or ""
    method = method_name(call)
    if name == "torch.device":
        yield from call.args[:1] if len(call.args) == 1 else []
    elif method == "to" and not name.startswith("torch."):
        yield from device_of_to(site, call)
    elif not (name.startswith("torch.") or method.startswith("new_") or method == "to_empty"):
        return
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "device")


def device_of_to(site: Site, call: ast.Call) -> list[ast.expr]:
    """Return the first argument of `.to` if it is PyTorch's method, by its receiver or the argument's name."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if not call.args or is_method_of_project(site, receiver, "to"):
        return []
    return call.args[:1] if may_be_torch_object(site, receiver) or has_device_number_name(call.args[0]) else []
