"""Replace CUDA by the card in command line options.

     import argparse
     import torch
     import torch_npu
     parser = argparse.ArgumentParser()
    -parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cuda or cpu")
    +parser.add_argument("--device", default="npu", choices=["cpu", "npu"], help="cuda or cpu")

The rule edits options of argparse, click and absl that have "device" in their name or whose value is used as a device:
their default, const and choices. Help texts stay, and so do choices that have the card already. With `--to any` choices
stay that have all cards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.device_texts import device_literal, is_device_name
from viaduct.migration.lookups import branches, elements, literal_text
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._devices import find_devices, replace_device_text
from viaduct.migration.rules.torch._options import get_option_names, get_option_values

rule = Rule(
    __name__, target_needs="device_strings", spec_rows=("P9",), targets=ALL_TARGETS, former_names=("any_device_text",)
)


@rule.file(only_if_file_contains=("add_argument", "click", "DEFINE_"))
def replace_in_options(site: Site) -> None:
    if "cuda" not in site.source.text or not is_in_torch_program(site):
        return
    options = [(call, names) for call in site.source.nodes_of_type(ast.Call) if (names := get_option_names(site, call))]
    if not any(device_literal(value) for call, _ in options for value in find_possible_values(site, call)):
        return  # saves the slow find_devices
    devices = find_devices(site)
    for call, names in options:
        if any(is_device_name(name) or name in devices.device_keys for name in names):
            for literal in filter(None, map(device_literal, find_possible_values(site, call))):
                replace_device_text(site, literal)


def find_possible_values(site: Site, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the possible values of an option, except choices that have every card already."""
    for value in get_option_values(site, call):
        choices = value.args[0] if isinstance(value, ast.Call) and value.args else value  # click.Choice([...])
        yield from flatten_choices(choices, {card.device for card in site.cards})


def flatten_choices(value: ast.expr, devices: set[str]) -> Iterator[ast.expr]:
    """Yield the branches and elements of a value, except collections that contain all the devices."""
    for branch in branches(value):
        parts = elements(branch)
        if parts == [branch]:
            yield branch
        elif not devices <= set(map(literal_text, parts)):
            for part in parts:
                yield from flatten_choices(part, devices)
