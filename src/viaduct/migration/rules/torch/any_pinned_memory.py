"""Pin memory for whatever card there is.

     import torch
     from torch.utils.data import DataLoader
    +from accelerator_device import accelerator
    -loader = DataLoader(data, pin_memory=True)
    +loader = DataLoader(data, pin_memory=True, pin_memory_device=accelerator.pin_memory_device())

DataLoader pins for CUDA unless it is told a device; on CUDA and on the CPU the helper says "", the default. A tensor's
own `pin_memory()` is refused by newer torch where there is no card; outside a branch that asks for one, that is said.
"""

from __future__ import annotations

import ast

from viaduct.migration.classes import class_called
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import guarded, helper
from viaduct.migration.rules.torch._device_texts import is_text
from viaduct.migration.rules.torch.pinned_memory import (
    DEVICE,
    LOADERS,
    PIN,
    is_loader,
    is_true,
    unpacked_calls,
    unpacked_tables,
)

rule = Rule(__name__, spec="P16", kind="performance", targets=("any",), order=50)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.call(*LOADERS)
def add(site: Site) -> None:
    for table in unpacked_tables(site):
        add_to_table(site, table)
    for call in unpacked_calls(site):
        add_to_call(site, call)
    pinned = site.argument("pin_memory", 7)
    if pinned is None or (isinstance(pinned, ast.Constant) and not pinned.value) or site.unpacked or not site.editable:
        return
    if site.keyword("pin_memory_device") is None:
        site.edit.add_argument(site.node, f"pin_memory_device={helper(site)}.pin_memory_device()")
        site.changed("memory is pinned for whatever card there is", zh="按现有的加速卡锁页内存")


@rule.node(ast.Call, words=(PIN,))
def add_own(site: Site) -> None:
    """A class of the project that derives from DataLoader and hands its arguments on."""
    made = class_called(site.work.project, site.qualified(site.node.func) or "")
    if made is not None and is_loader(site, made):
        add(site)


def add_to_call(site: Site, call: ast.Call) -> None:
    """`dict(pin_memory=True)`."""
    table = Site(site.rule, site.work, call)
    if ("any pinned", call) not in site.work.seen and table.keyword(DEVICE) is None and is_true(table.argument(PIN)):
        site.work.seen[("any pinned", call)] = None
        site.edit.add_argument(call, f"{DEVICE}={helper(site, call)}.pin_memory_device()")
        site.changed("memory is pinned for whatever card there is", zh="按现有的加速卡锁页内存", node=call)


def add_to_table(site: Site, table: ast.Dict) -> None:
    """`options = {"pin_memory": True}` and then `DataLoader(data, **options)`."""
    if ("any pinned", table) in site.work.seen or any(is_text(key, DEVICE) for key in table.keys):
        return
    for key, value in zip(table.keys, table.values, strict=True):
        if key is not None and is_text(key, "pin_memory") and is_true(value):
            site.work.seen[("any pinned", table)] = None
            name = site.text(key).replace("pin_memory", DEVICE)
            site.edit.insert(site.source.span(value)[1], f", {name}: {helper(site, table)}.pin_memory_device()")
            site.changed("memory is pinned for whatever card there is", zh="按现有的加速卡锁页内存", node=value)


@rule.method("pin_memory")
def by_hand(site: Site) -> None:
    if not site.node.args and not site.node.keywords and not guarded(site, site.node) and not compared(site):
        site.advice(
            "without a card torch may refuse to pin memory: ask accelerator.is_available() first",
            zh="没有加速卡时 torch 可能拒绝锁页:请先判断 accelerator.is_available()",
        )


def compared(site: Site) -> bool:
    """In a branch for the card's type."""
    tests = [one.test for one in site.source.ancestors(site.node) if isinstance(one, ast.If | ast.IfExp)]
    return any(".TYPES" in ast.unparse(test) or '"cuda"' in site.text(test) for test in tests)
