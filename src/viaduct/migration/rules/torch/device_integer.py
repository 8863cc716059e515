"""Import the plug-in where a device is a bare number.

     import torch
    +import torch_npu
     def work(rank: int, model: torch.nn.Module) -> None:
         model = model.to(rank)
         x = torch.zeros(3, device=0)

A number means CUDA in stock PyTorch, and the plug-in's card once torch_npu or torch_mlu is imported: `.to(0)`,
`device=rank` and `torch.device(args.gpu)` stay as they are, and only the import is added. A number is a
literal, an int(), a rank of torch.distributed, an option of type int, the worker's number of mp.spawn, a name that is
only ever one of these, and by habit `local_rank`, `rank`, `gpu`, `gpu_id`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch import _numbers as numbers
from viaduct.migration.rules.torch._devices import receiver_class
from viaduct.migration.rules.torch._numbers import branches, is_torchs
from viaduct.migration.rules.torch._plugin_use import imported_elsewhere
from viaduct.migration.targets import card

rule = Rule(__name__, spec="P8 6", kind="mandatory", targets=("npu", "mlu"))


@rule.node(ast.Call, words=(".to(", "device"))
def ask_for_import(site: Site) -> None:
    """Without the import, here or elsewhere, the number would still mean CUDA."""
    target = card(site.options)
    if not is_in_torch_program(site) or imported_elsewhere(site, target):
        return
    for value in device_arguments(site, site.node):
        if any(is_numbered(site, node) for node in branches(value)):
            site.work.effects.add(target.module)


def is_numbered(site: Site, value: ast.expr) -> bool:
    """Return True for what is a number, or a name that is one at times."""
    return numbers.is_number(site, value) or (isinstance(value, ast.Name) and numbers.is_partly_number(site, value))


def device_arguments(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments in which PyTorch itself takes a device."""
    name = site.qualified(call.func) or ""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "torch.device":
        yield from call.args[:1] if len(call.args) == 1 else []
    elif method == "to" and not name.startswith("torch."):
        yield from taken_by_to(site, call)
    elif not (name.startswith("torch.") or method.startswith("new_") or method == "to_empty"):
        return
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "device")


def taken_by_to(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the argument of `.to`: of `Thing().to(0)` nobody knows what a Thing is; `Thing().to(rank)` shows it."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if not call.args or receiver_class(site, receiver, "to") is not None:
        return
    if is_torchs(site, receiver) or numbers.is_habit(call.args[0]):
        yield call.args[0]
