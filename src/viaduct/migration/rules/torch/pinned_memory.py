"""Pin the memory of batches for the accelerator.

     import torch
     import torch_npu
     from torch.utils.data import DataLoader
    -loader = DataLoader(data, batch_size=32, pin_memory=True)
    +loader = DataLoader(data, batch_size=32, pin_memory=True, pin_memory_device="npu")

Up to PyTorch 2.7 a data loader pins for CUDA unless it is told the device, and without CUDA it does not pin at all;
later releases pin for the accelerator that is there and only warn about the argument. PyTorch 1.11 and older do not
know it. Options that come as a dictionary (`DataLoader(data, **options)`) get the entry where the dictionary stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.classes import class_called, lineage, owner_of
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import is_text
from viaduct.migration.rules.torch._devices import AVAILABLE
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P16", kind="performance", targets=("npu", "mlu"), order=50)

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
PIN, DEVICE, PLACE = "pin_memory", "pin_memory_device", 7


@rule.call(*LOADERS)
def pin(site: Site) -> None:
    value = site.argument(PIN, PLACE)
    if value is None:
        for table in unpacked_tables(site):
            pin_in_table(site, table)
        for call in unpacked_calls(site):
            pin_in_call(site, call)
    elif (
        (is_true(value) or is_true_on_card(site, value))
        and site.keyword(DEVICE) is None
        and site.editable
        and not hides(site)
    ):
        site.set_argument(DEVICE, f'"{card(site.options).device}"')
        say(site)
    elif not isinstance(value, ast.Constant) and site.keyword(DEVICE) is None:
        advise(site)


@rule.node(ast.Call, words=(PIN,))
def pin_own(site: Site) -> None:
    """A class of the project that derives from DataLoader and hands its arguments on."""
    made = class_called(site.work.project, site.qualified(site.node.func) or "")
    if made is not None and is_loader(site, made):
        pin(site)


def is_loader(site: Site, name: str) -> bool:
    project = site.work.project
    starts = owner_of(project, name, "__init__")
    handed_on = starts is None or not project.classes[starts].methods["__init__"]  # (self, *args, **options)
    return handed_on and any(base in LOADERS for base in lineage(project, name))


def is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def is_true_on_card(site: Site, value: ast.expr) -> bool:
    """`torch.cuda.is_available()`, `device.type == "npu"`, or a name for one of them."""
    made = site.values.origin(value)
    if isinstance(made, ast.IfExp):  # True if torch.cuda.is_available() else False
        off = isinstance(made.orelse, ast.Constant) and made.orelse.value is False
        return is_true(made.body) and off and is_true_on_card(site, made.test)
    if isinstance(made, ast.Compare):
        right = made.comparators[0]
        return isinstance(made.ops[0], ast.Eq) and is_text(right, "cuda", card(site.options).device)
    return isinstance(made, ast.Call) and site.qualified(made.func) in AVAILABLE


def hides(site: Site) -> bool:
    """Whether ** could bring the argument already."""
    return any(word.arg is None for word in site.node.keywords) and any(
        is_text(key, DEVICE) for table in unpacked_tables(site) for key in table.keys
    )


def unpacked_tables(site: Site) -> Iterator[ast.Dict]:
    """The dictionaries behind `**options`, as far as they are written in the file."""
    yield from (value for value in unpacked(site) if isinstance(value, ast.Dict))


def unpacked_calls(site: Site) -> Iterator[ast.Call]:
    """The same as calls: `dict(pin_memory=True)`."""
    for value in unpacked(site):
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
            yield value


def unpacked(site: Site) -> Iterator[ast.expr]:
    for word in site.node.keywords:
        if word.arg is not None:
            continue
        values = written(site, word.value)
        for call in site.work.index.methods.get("update", []) if isinstance(word.value, ast.Name) else ():
            same = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
            if same and call.func.value.id == word.value.id:  # type: ignore[attr-defined]
                values += [one for value in call.args for one in written(site, value)]
        yield from values


def written(site: Site, value: ast.expr) -> list[ast.expr]:
    """An expression, or all that a name is assigned; both branches of a choice."""
    values = [value]
    if isinstance(value, ast.Name):
        bound = site.work.names.lookup(value.id, site.work.names.scope_of(value)) or []
        values = [what for what in bound if isinstance(what, ast.expr)]
    return [
        one for value in values for one in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
    ]


def pin_in_table(site: Site, table: ast.Dict) -> None:
    if ("pinned", table) in site.work.seen or any(is_text(key, DEVICE) for key in table.keys):
        return
    for key, value in zip(table.keys, table.values, strict=True):
        if is_text(key, PIN) and is_true(value) and key is not None:
            site.work.seen[("pinned", table)] = None
            quote = site.text(key)[0]
            device = card(site.options).device
            site.edit.insert(site.source.span(value)[1], f", {quote}{DEVICE}{quote}: {quote}{device}{quote}")
            say(site, value)


def pin_in_call(site: Site, call: ast.Call) -> None:
    table = Site(site.rule, site.work, call)
    if ("pinned", call) not in site.work.seen and table.keyword(DEVICE) is None and is_true(table.argument(PIN)):
        site.work.seen[("pinned", call)] = None
        table.set_argument(DEVICE, f'"{card(site.options).device}"')
        say(table)


def say(site: Site, node: ast.AST | None = None) -> None:
    device = card(site.options).device
    site.changed(f"batches are pinned for {device}", zh=f"锁页内存用于 {device}", node=node)


def advise(site: Site) -> None:
    device = card(site.options).device
    site.advice(
        f"pin_memory is decided at run time: where it is on, PyTorch before 2.8 needs pin_memory_device={device!r} too",
        zh=f"pin_memory 在运行时决定:为 True 时,PyTorch 2.8 之前还需传入 pin_memory_device={device!r}",
    )
