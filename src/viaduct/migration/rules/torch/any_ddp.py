"""Give DistributedDataParallel no device where there is no card.

     import torch
     from torch.nn.parallel import DistributedDataParallel as DDP
    +from accelerator_device import accelerator
    -model = DDP(model, device_ids=[rank])
    +model = DDP(model, device_ids=accelerator.unless_cpu([rank]))

On the CPU device_ids and output_device must be None. In a branch that is taken only if there is a card nothing changes.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import guarded, helper

rule = Rule(__name__, spec="P15", kind="mandatory", targets=("any",), order=70)
EXAMPLE_OPTIONS = {"to": "any"}

HOME = "torch.nn.parallel"
WRAPPERS = (f"{HOME}.DistributedDataParallel", f"{HOME}.distributed.DistributedDataParallel")


@rule.call(*WRAPPERS)
def wrap(site: Site) -> None:
    if guarded(site, site.node) or not site.editable:
        return
    for name, position in (("device_ids", 1), ("output_device", 2)):
        value = site.argument(name, position)
        if value is None or "unless_cpu" in site.text(value) or site.text(value) == "None":
            continue
        site.edit.node(value, f"{helper(site)}.unless_cpu({site.text(value)})")
        site.changed(f"{name} is None where there is no card", zh=f"没有加速卡时 {name} 为 None", node=value)
