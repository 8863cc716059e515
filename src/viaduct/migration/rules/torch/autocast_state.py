"""Read and set the autocast dtype and switch of the card instead of CUDA's.

With `--to mlu`:

     import torch
    +import torch_mlu
    -dtype = torch.get_autocast_gpu_dtype()
    +dtype = torch.mlu.get_autocast_dtype()

`torch.get_autocast_gpu_dtype` and `torch.set_autocast_gpu_dtype` are for CUDA, as are `torch.is_autocast_enabled` and
`torch.set_autocast_enabled` without a device type. torch_npu and torch_mlu have counterparts of all four.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import rename_or_report
from viaduct.migration.rules.torch._imports import move_names

rule = Rule(__name__, target_needs="amp", spec_rows=("P11", "6"), targets=ALL_CARDS)

DTYPE_FUNCTIONS = {
    "torch.get_autocast_gpu_dtype": "get_autocast_dtype",
    "torch.set_autocast_gpu_dtype": "set_autocast_dtype",
}
SWITCH_ARGUMENTS = {"torch.is_autocast_enabled": 0, "torch.set_autocast_enabled": 1}
"""Function that reads or sets the switch -> number of its arguments in a call without a device type."""


@rule.node(ast.ImportFrom, only_if_file_contains=("autocast_gpu_dtype",))
def move_imports(site: Site) -> None:
    """Import the dtype functions from the card's package."""
    if site.node.module == "torch" and not site.node.level:
        package = site.target.card.plugin_module
        move_names(site, lambda name: f"{package}.{DTYPE_FUNCTIONS[name]}" if name in DTYPE_FUNCTIONS else None)


@rule.use(*DTYPE_FUNCTIONS)
def rename_dtype(site: Site) -> None:
    rename_on_card(site, DTYPE_FUNCTIONS[site.name])


@rule.call(*SWITCH_ARGUMENTS)
def rename_switch(site: Site) -> None:
    """Rename the switch, unless a device type is given, for which torch's function supports every card."""
    if (
        len(site.node.args) == SWITCH_ARGUMENTS[site.name]
        and not site.node.keywords
        and not site.has_unpacked_arguments
    ):
        rename_on_card(site, site.name.rpartition(".")[2])


def rename_on_card(site: Site, name: str) -> None:
    """Replace a function of torch by the card's, unless it is imported by name: then the import is edited."""
    if isinstance(site.name_node, ast.Attribute):
        rename_or_report(site, site.name_node, f"{site.target.card.torch_module}.{name}")
