"""Load checkpoints by way of the host where the card is another.

     import torch
    -state = torch.load(path)
    +from accelerator_device import accelerator
    +state = torch.load(path, map_location=accelerator.map_location())

Without map_location a checkpoint goes back to the device it was saved from, which fails where that is no CUDA device.
On CUDA the helper says None, the default: nothing changes. A map_location that is given is left to the rule of
devices.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import helper

rule = Rule(__name__, spec="P18", kind="mandatory", targets=("any",), order=50)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.call("torch.load", "torch.jit.load")
def add(site: Site) -> None:
    where = site.argument("map_location", 1)
    plain = isinstance(where, ast.Constant) and where.value is None
    if (where is not None and not plain) or not (site.node.args or site.node.keywords):
        return
    if not site.editable or (site.unpacked and where is None):
        site.manual(
            "see that it gets map_location=accelerator.map_location()",
            zh="请确认传入 map_location=accelerator.map_location()",
        )
        return
    site.set_argument("map_location", f"{helper(site)}.map_location()", 1)
    site.changed(
        "a checkpoint from another kind of card comes by way of the host", zh="其他加速卡保存的检查点先载入主机内存"
    )
