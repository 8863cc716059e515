"""Replace CUDA by the card in comparisons of a device.

     import torch
     import torch_npu
     def fast(x: torch.Tensor) -> bool:
    -    return x.device.type == "cuda"
    +    return x.device.type == "npu"

The rule edits `==`, `!=`, `in`, `match`, and methods such as `startswith`, if a device, its type or its text is
compared. A comparison of something that may be no device is reported. `device_key` reports dictionaries whose keys are
device types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import elements
from viaduct.migration.predicates import is_in_torch_program, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_literal, is_cuda_device, is_membership_key, rename_device
from viaduct.migration.rules.torch._devices import Devices, find_devices

rule = Rule(__name__, requirement="device_strings", rows=("P9",), targets=("npu", "mlu"), after=("cuda_api",))

TEXT_METHODS = ("startswith", "replace", "removeprefix", "split", "partition", "find", "index", "count", "lstrip")
EDITED_OPERATORS = ast.Eq | ast.NotEq | ast.In | ast.NotIn


@rule.file(only_if_file_contains=('"cuda', "'cuda"))
def replace_in_comparisons(site: Site) -> None:
    """Change comparisons of a device with CUDA; report comparisons of something that may be no device."""
    if not is_in_torch_program(site):
        return
    devices = find_devices(site)
    for node in site.source.nodes_of_types(ast.Compare, ast.Call, ast.Match):
        if isinstance(node, ast.Compare):
            compare_sides(site, devices, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS:
            if devices.is_device(node.func.value):
                replace_texts(site, node.args[0] if node.args else None)
        elif isinstance(node, ast.Match):
            for value in (value for case in node.cases for value in pattern_values(case.pattern)):
                if devices.is_device(node.subject):
                    replace_texts(site, value)
                elif is_cuda_device(value):
                    report_undecided(site, value)


def compare_sides(site: Site, devices: Devices, node: ast.Compare) -> None:
    """Change the side of a comparison that names CUDA if the other side is a device; else report it."""
    sides = [node.left, *node.comparators]
    for left, operator, right in zip(sides, node.ops, node.comparators, strict=False):
        if not isinstance(operator, EDITED_OPERATORS):
            continue
        for item, other in ((left, right), (right, left)):
            if not any(map(device_literal, elements(item))):
                continue
            if devices.is_device(other):
                keeps_cuda = site.file.target_code_lines and is_literal_in(item, "cuda")  # has code for both cards
                if not keeps_cuda or not compare_with_both(site, node, other):
                    replace_texts(site, item)
            elif any(map(is_cuda_device, elements(item))) and not is_membership_key(operator, left, item):
                report_undecided(site, node)


def compare_with_both(site: Site, node: ast.Compare, device: ast.expr) -> bool:
    """Turn `device.type == "cuda"` into a test for CUDA and the card; return False if it stays."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq) or site.source.is_in_f_string(node):
        return False
    if site.file.is_left_alone(node) or not (isinstance(device, ast.Attribute) and device.attr == "type"):
        return False
    if is_branch_for_one_card(site, node):
        return False
    name = site.target.card.device
    negated = "not in" if isinstance(node.ops[0], ast.NotEq) else "in"
    site.edit.replace_node(node, f'{site.text_of(device)} {negated} ("cuda", "{name}")')
    site.report_change(f"the device is compared with {name} too", zh=f"设备同时与 {name} 比较", node=node)
    return True


def is_branch_for_one_card(site: Site, node: ast.Compare) -> bool:
    """Return True if the branch that the comparison decides on calls functions of CUDA or the card."""
    call_texts = ("torch.cuda", ".cuda(", f".{site.target.card.device}.", f".{site.target.card.device}(")
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp | ast.While):
            body = [parent.body] if isinstance(parent.body, ast.expr) else parent.body
            return any(text in site.text_of(statement) for statement in body for text in call_texts)
        if isinstance(parent, ast.stmt):
            return False
    return False


def replace_texts(site: Site, value: ast.expr | None) -> None:
    """Replace CUDA by the card in the texts of a value, unless one of them is the card."""
    device = site.target.card.device
    if value is None or any(is_literal_in(part, device) for part in elements(value)):
        return
    for literal in filter(None, map(device_literal, elements(value))):
        if rename_device(site, literal, device):
            site.report_change(f"the device is compared with {device}", zh=f"设备改为与 {device} 比较", node=literal)


def pattern_values(pattern: ast.pattern) -> Iterator[ast.expr]:
    """Yield the values of a pattern and of its alternatives."""
    if isinstance(pattern, ast.MatchValue):
        yield pattern.value
    for inner in pattern.patterns if isinstance(pattern, ast.MatchOr) else []:
        yield from pattern_values(inner)


def report_undecided(site: Site, node: ast.expr) -> None:
    """Report a comparison with 'cuda' of something that may be no device."""
    device = site.target.card.device
    site.request_review(
        f"this compares 'cuda' with something that may be no device: unchanged; if it is one, write {device}",
        zh=f"与 'cuda' 比较,但未能确认是设备:保持不变;若是设备,请改为 {device}",
        risk="low",
        node=node,
    )
