"""Point out tables that are looked up by the kind of a device.

     import torch
     BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
     def backend(device: torch.device) -> str:
         return BACKENDS[device.type]

Keys of dictionaries are a script's own and stay. Where such a table is asked with a device's type, the accelerator's
type is not among its keys: a KeyError, or with `get` a default that nobody meant. What belongs under the new key only
a person knows.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._device_texts import device_like
from viaduct.migration.rules.torch._targets import cards

rule = Rule(__name__, spec="P9 6", kind="report", targets=("npu", "mlu", "any"), order=90, patch=True)


@rule.node(ast.Subscript, words=(".type",))
def indexed(site: Site) -> None:
    look_up(site, site.node.value, site.node.slice)


@rule.method("get")
def asked(site: Site) -> None:
    if site.node.args:
        look_up(site, site.node.func.value, site.node.args[0])


def look_up(site: Site, table: ast.expr, key: ast.expr) -> None:
    if not is_kind(site, key):
        return
    known = site.values.origin(table)
    keys = [one.value for one in known.keys if isinstance(one, ast.Constant)] if isinstance(known, ast.Dict) else []
    missing = [target.device for target in cards(site.options) if target.device not in keys]
    if "cuda" in keys and missing:
        told = " and ".join(map(repr, missing))
        site.manual(
            f"this table has a key 'cuda' and is asked with a device's type: give it one for {told}",
            zh=f"此表含有键 'cuda' 并以设备类型查询:请为 {told.replace(' and ', '、')} 增加对应的键",
            risk="high",
        )


def is_kind(site: Site, node: ast.expr) -> bool:
    """`device.type`, `x.device.type`."""
    if not isinstance(node, ast.Attribute) or node.attr != "type":
        return False
    value = node.value
    name = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
    return device_like(name) or site.values.kind(value) == "torch_device"
