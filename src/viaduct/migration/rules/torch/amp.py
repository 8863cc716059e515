"""Replace torch.cuda.amp.autocast by the card's autocast, with keyword arguments on the NPU.

     import torch
    +import torch_npu
    -with torch.cuda.amp.autocast(use_amp):
    +with torch.npu.amp.autocast(enabled=use_amp):
         pass

The first parameter of `torch.cuda.amp.autocast` is `enabled`, but in older releases of torch_npu it is the device. A
keyword argument is right with every release. On the MLU positional arguments stay. The rules `cuda_api` and `imports`
rename other names of `torch.cuda.amp`.
"""

from __future__ import annotations

import ast

from viaduct.cards import DEVICE_TYPES
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._dotted_names import replace_qualified_name

rule = Rule(__name__, target_needs="amp", spec_rows=("P11", "6"), targets=ALL_CARDS)

AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
# With the cards' own names, since positional arguments in code that was migrated before become keyword arguments too.
AUTOCAST_NAMES = tuple(
    f"torch.{root}.amp.{name}" for root in DEVICE_TYPES for name in ("autocast", "autocast_mode.autocast")
)


@rule.call(*AUTOCAST_NAMES)
def name_arguments(site: Site) -> None:
    """Rename autocast, and name its positional arguments for the NPU."""
    card = site.target.card
    if not site.is_editable or not site.name.startswith(("torch.cuda.", f"{card.torch_module}.")):
        return
    new = site.name.replace("torch.cuda", card.torch_module, 1)
    renamed = replace_qualified_name(site, site.node.func, site.name, new)
    needs_parentheses = any(isinstance(value, ast.NamedExpr | ast.GeneratorExp) for value in site.node.args)
    names_arguments = (
        card.name == "npu" and bool(site.node.args) and not site.has_unpacked_arguments and not needs_parentheses
    )
    if names_arguments:
        site.pass_all_by_keyword(AUTOCAST_PARAMETERS)
    if renamed or names_arguments:
        site.report_change(f"autocast becomes that of the {card.title}", zh=f"改用 {card.title} 的 autocast")
