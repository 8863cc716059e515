"""Replace CUDA by the card in command line options.

     import argparse
     import torch
     import torch_npu
     parser = argparse.ArgumentParser()
    -parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cuda or cpu")
    +parser.add_argument("--device", default="npu", choices=["cpu", "npu"], help="cuda or cpu")

The rule edits options of argparse, click and absl that have "device" in their name or whose value is used as a device:
their default, const and choices. Help texts stay, and so do choices that have the card already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import branches, elements
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_literal, is_device_name, rename_device
from viaduct.migration.rules.torch._devices import find_devices
from viaduct.migration.rules.torch._options import option_names, option_values

rule = Rule(__name__, requirement="device_strings", rows=("P9",), targets=("npu", "mlu"))


@rule.file(only_if_file_contains=("add_argument", "click", "DEFINE_"))
def replace_in_options(site: Site) -> None:
    if "cuda" not in site.source.text or not is_in_torch_program(site):
        return
    options = [(call, names) for call in site.source.nodes_of_type(ast.Call) if (names := option_names(site, call))]
    if not any(device_literal(value) for call, _ in options for value in possible_values(site, call)):
        return  # saves the slow find_devices
    devices = find_devices(site)
    for call, names in options:
        if any(is_device_name(name) or name in devices.device_keys for name in names):
            replace_values(site, call)


def possible_values(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the possible values of an option, except choices that have the card already."""
    for value in option_values(site, call):
        choices = value.args[0] if isinstance(value, ast.Call) and value.args else value  # click.Choice([...])
        yield from flatten(choices, site.target.card.device)


def flatten(value: ast.expr, device: str) -> Iterator[ast.expr]:
    """Yield the branches and elements of a value, except collections that contain the device."""
    for branch in branches(value):
        parts = elements(branch)
        if parts == [branch]:
            yield branch
        elif not any(is_literal_in(part, device) for part in parts):
            for part in parts:
                yield from flatten(part, device)


def replace_values(site: Site, call: ast.Call) -> None:
    device = site.target.card.device
    for value in possible_values(site, call):
        literal = device_literal(value)
        if literal is not None and rename_device(site, literal, device):
            site.report_change(f"the option's device is {device}", zh=f"命令行选项的设备改为 {device}", node=literal)
