"""Offer the accelerator where an option of the command line offers CUDA.

     import argparse
     import torch
     import torch_npu
     parser = argparse.ArgumentParser()
    -parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cuda or cpu")
    +parser.add_argument("--device", default="npu", choices=["cpu", "npu"], help="cuda or cpu")

Default, const, choices and possible values of options that are called device, or whose value is used as one; of
argparse, click and absl. Help texts stay as they are. Choices that hold the accelerator already stay too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_like, head, rename
from viaduct.migration.rules.torch._devices import find_devices
from viaduct.migration.rules.torch._options import FLAGS, VALUES, calls, option_names
from viaduct.migration.targets import card

rule = Rule(__name__, spec="P9", kind="mandatory", targets=("npu", "mlu"))


@rule.file(words=("add_argument", "click", "DEFINE_"))
def offer(site: Site) -> None:
    """Change the device of command line options."""
    if "cuda" not in site.source.text or not is_in_torch_program(site):
        return
    options = [(call, names) for call in calls(site) for names in [option_names(site, call)] if names]
    if not any(head(literal) for call, _ in options for literal in literals(site, call)):
        return
    devices = find_devices(site)
    for call, names in options:
        if any(device_like(name) or name in devices.attributes for name in names):
            change(site, call)


def literals(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """The strings that can be the option's value."""
    values = [keyword.value for keyword in call.keywords if keyword.arg in VALUES]
    values += call.args[1 : FLAGS.get(site.qualified(call.func) or "", 0)]
    for value in values:
        offered = value.args[0] if isinstance(value, ast.Call) and value.args else value  # click.Choice([...])
        pending = [offered]
        while pending:
            item = pending.pop()
            if isinstance(item, ast.List | ast.Tuple | ast.Set):
                if not any(is_literal_in(element, card(site.options).device) for element in item.elts):
                    pending += item.elts
            elif isinstance(item, ast.IfExp):
                pending += [item.body, item.orelse]
            else:
                yield item


def change(site: Site, call: ast.Call) -> None:
    """Change the texts that can be the value of one option."""
    device = card(site.options).device
    for value in literals(site, call):
        literal = head(value)
        if literal is not None and rename(site, literal, device):
            site.changed(f"the option's device is {device}", zh=f"命令行选项的设备改为 {device}", node=literal)
