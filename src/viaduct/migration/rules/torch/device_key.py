"""Report dictionaries with device types as keys that show no entry for the card.

     import torch
     BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
     def backend(device: torch.device) -> str:
         return BACKENDS[device.type]

Keys stay, since the right value for a new key is not known. Without an entry for the card the lookup raises a KeyError,
or with `get` returns the default.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.device_texts import is_cuda_device
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Site, make_rule_on_migrated_code
from viaduct.migration.rules.torch._devices import find_devices

rule = make_rule_on_migrated_code(__name__, target_needs="device_strings", spec_rows=("P9", "6"))


@rule.file(only_if_file_contains=('"cuda', "'cuda"))
def report_lookups(site: Site) -> None:
    """Report dictionaries that are looked up by the type of a device."""
    if is_in_torch_program(site):
        devices = find_devices(site)
        for table, key in find_table_reads(site):
            if devices.is_device(key):
                report_missing(site, table)


def find_table_reads(site: Site) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield table and key of each `table[key]` and `table.get(key)`."""
    for node in site.source.nodes_of_type(ast.Subscript):
        yield node.value, node.slice
    for call in site.file.index.methods.get("get", []):
        if call.args and isinstance(call.func, ast.Attribute):
            yield call.func.value, call.args[0]


def report_missing(site: Site, table: ast.expr) -> None:
    """Report a dictionary that shows an entry for CUDA and none for the card."""
    origin = site.values.assigned_value(table)
    keys = origin.keys if isinstance(origin, ast.Dict) else []
    texts = [key.value for key in keys if isinstance(key, ast.Constant)]
    missing = [card.device for card in site.cards if card.device not in texts]
    if missing and any(is_cuda_device(key) for key in keys):
        reported = " and ".join(map(repr, missing))
        site.request_review(
            f"this dictionary is looked up by a device and shows no entry for {reported}: add one beside 'cuda'",
            zh=f"此表按设备查询,但未见 {reported.replace(' and ', '、')} 的条目:请在 'cuda' 之外添加",
            risk="high",
            node=table,
        )
