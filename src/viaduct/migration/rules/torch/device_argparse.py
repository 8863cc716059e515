"""Offer the accelerator where an option of the command line offers CUDA.

     import argparse
     import torch
     import torch_npu
     parser = argparse.ArgumentParser()
    -parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cuda or cpu")
    +parser.add_argument("--device", default="npu", choices=["cpu", "npu"], help="cuda or cpu")

Default, const, choices and possible values of options that are called device, or whose value is used as one; of
argparse, click, typer and absl. Help texts stay as they are. Choices that hold the accelerator already stay too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_like, head, is_text, rename
from viaduct.migration.rules.torch._devices import find_devices
from viaduct.migration.rules.torch._targets import card
from viaduct.migration.rules.torch.device_string import imports_torch

rule = Rule(__name__, spec="P9", kind="mandatory", targets=("npu", "mlu"), order=40)

FLAGS = {"absl.flags.DEFINE_string": 2, "absl.flags.DEFINE_list": 2, "absl.flags.DEFINE_enum": 3}
"""So many positions hold the name and what the value can be; a help text follows."""
CLICK = ("click.option", "click.argument", "rich_click.option")
VALUES = ("default", "const", "choices", "type", "nargs", "flag_value", "enum_values")


@rule.file(words=("add_argument", "click", "DEFINE_"))
def offer(site: Site) -> None:
    if "cuda" not in site.source.text or not imports_torch(site):
        return
    options = [(call, names) for call in calls(site) for names in [option_names(site, call)] if names]
    if not any(head(literal) for call, _ in options for literal in literals(site, call)):
        return
    devices = find_devices(site)
    for call, names in options:
        if any(device_like(name) or name in devices.attributes for name in names):
            change(site, call)


def calls(site: Site) -> Iterator[ast.Call]:
    for node in site.source.of_kind(ast.Call):
        if isinstance(node, ast.Call):
            yield node


def option_names(site: Site, call: ast.Call) -> list[str]:
    """`--train-device` becomes `train_device`, as the parser has it; none if the call declares no option."""
    qualified = site.qualified(call.func) or ""
    declares = isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    if not (declares or qualified in CLICK or qualified in FLAGS):
        return []
    given = call.args[:1] if qualified in FLAGS else call.args
    written = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    written += [str(word.value.value) for word in call.keywords if word.arg == "dest" and is_constant(word.value)]
    return [text.split("/")[0].strip().lstrip("-").replace("-", "_") for text in written]


def is_constant(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant)


def literals(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """The strings that can be the option's value."""
    values = [word.value for word in call.keywords if word.arg in VALUES]
    values += call.args[1 : FLAGS.get(site.qualified(call.func) or "", 0)]
    for value in values:
        offered = value.args[0] if isinstance(value, ast.Call) and value.args else value  # click.Choice([...])
        pending = [offered]
        while pending:
            one = pending.pop()
            if isinstance(one, ast.List | ast.Tuple | ast.Set):
                if not any(is_text(element, card(site.options).device) for element in one.elts):
                    pending += one.elts
            elif isinstance(one, ast.IfExp):
                pending += [one.body, one.orelse]
            else:
                yield one


def change(site: Site, call: ast.Call) -> None:
    word = card(site.options).device
    for value in literals(site, call):
        literal = head(value)
        if literal is not None and rename(site, literal, word):
            site.changed(f"the option's device is {word}", zh=f"命令行选项的设备改为 {word}", node=literal)
