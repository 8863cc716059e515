"""Name the accelerator where a string names a CUDA device.

     import torch
     import torch_npu
    -device = "cuda:0" if torch.npu.is_available() else "cpu"
    +device = "npu:0" if torch.npu.is_available() else "cpu"
     x = torch.zeros(3, device=device)
     print("cuda is", {"cuda": 1})

A string is a device where PyTorch takes one (`.to`, `device=`, `torch.device`, `map_location=` …) or gets there
through names, parameters, defaults, attributes and dictionaries; and where it is given to something called device.
Messages, help texts, paths, keys of dictionaries and names of kernels stay. What looks like a device but is not seen to
be used as one is left, and named.
"""

from __future__ import annotations

import ast

from viaduct.migration.frameworks import TORCH
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_like, is_exact, rename
from viaduct.migration.rules.torch._devices import Devices, find_devices
from viaduct.migration.rules.torch._targets import card

rule = Rule(__name__, spec="P8 P9 P18 P24 P25 6", kind="mandatory", targets=("npu", "mlu"), order=40)


@rule.file(words=('"cuda', "'cuda"))
def name_devices(site: Site) -> None:
    if not imports_torch(site):
        return
    devices = find_devices(site)
    word = card(site.options).device
    for literal in devices.found:
        if not is_default_of_option(site, literal) and rename(site, literal, word):
            site.changed(f"the device is {word}", zh=f"设备改为 {word}", node=literal)
    for node in site.source.of_kind(ast.Constant):
        if isinstance(node, ast.Constant) and is_exact(node) and node not in devices.found:
            name_the_rest(site, node, word, devices)


def imports_torch(site: Site) -> bool:
    """Or is one of the other files of a PyTorch project."""
    project = site.work.project
    return bool(project.torch_files) and project.is_for(TORCH, site.work.path)


def is_default_of_option(site: Site, literal: ast.expr) -> bool:
    """Within an add_argument: `device_argparse` has looked at it."""
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "add_argument"
        for one in site.source.ancestors(literal)
    )


def is_card(value: ast.expr, word: str) -> bool:
    text = value.value if isinstance(value, ast.Constant) else None
    return isinstance(text, str) and text.partition(":")[0] == word


def name_the_rest(site: Site, node: ast.Constant, word: str, devices: Devices) -> None:
    """Only where a value is set: nobody wants to hear of every message that has the word in it."""
    if ("left", node.lineno) in site.work.seen or site.source.in_f_string(node):
        return
    parent = site.source.parents[node]
    if isinstance(parent, ast.Dict):
        keys = [key for key, value in zip(parent.keys, parent.values, strict=True) if value is node]
        told = any(isinstance(key, ast.Constant) and device_like(str(key.value)) for key in keys)
        told = told or (bool(keys) and any(value in devices.found or is_card(value, word) for value in parent.values))
    else:
        if isinstance(parent, ast.IfExp):
            parent = site.source.parents[parent]
        told = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.arguments)
    if told:
        site.work.seen[("left", node.lineno)] = None
        site.manual(
            f"{node.value!r} is not seen to be used as a device and is left as it is; if it is one, write {word}",
            zh=f"未能确认 {node.value!r} 被用作设备,保持不变;若是设备,请改为 {word}",
            risk="low",
            node=node,
        )
