"""Load checkpoints where the card is another than the one that saved them.

     import torch
    +from accelerator_device import accelerator
    -model.load_state_dict(torch.load(path))
    +model.load_state_dict(torch.load(path, map_location=accelerator.map_location()))
    -network = torch.load(other)
    +network = torch.load(other, map_location=accelerator.device())
     network.eval()(batch.to(device))

Without map_location a checkpoint goes back to the device it was saved from, which fails where that is no CUDA device.
Weights that go into load_state_dict come by way of the host; on CUDA the helper says None, the default, and nothing
changes. A whole network goes to the card. What is read on the host needs nothing. Where it is not seen what becomes of
the file's content, the load is left as it is and named.
"""

from __future__ import annotations

import ast

from viaduct.migration.flows import LOADS
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._any import helper
from viaduct.migration.rules.torch._loaded import wanted_place

rule = Rule(__name__, spec="P18", kind="mandatory", targets=("any",), order=50)
EXAMPLE_OPTIONS = {"to": "any"}


@rule.call(*LOADS)
def add(site: Site) -> None:
    where = site.argument("map_location", 1)
    plain = isinstance(where, ast.Constant) and where.value is None
    if (where is not None and not plain) or not (site.node.args or site.node.keywords):
        return
    wanted = wanted_place(site)
    if wanted == "nothing":
        return
    if wanted == "unknown" or not site.editable or (site.unpacked and where is None):
        leave(site)
    elif wanted == "host":
        site.set_argument("map_location", f"{helper(site)}.map_location()", 1)
        site.changed(
            "a checkpoint from another kind of card comes by way of the host", zh="其他加速卡保存的检查点先载入主机内存"
        )
    else:
        site.set_argument("map_location", f"{helper(site)}.device()", 1)
        site.changed("what was saved on another card is loaded on this one", zh="其他加速卡保存的内容加载到当前加速卡")


def leave(site: Site) -> None:
    site.unresolved(
        "see where this file's content is used: weights for load_state_dict want "
        "map_location=accelerator.map_location(), a network or tensors for the card map_location=accelerator.device()",
        zh="请确认此文件内容的用途:供 load_state_dict 使用的权重应传入 map_location=accelerator.map_location(),"
        "在加速卡上使用的网络或张量应传入 map_location=accelerator.device()",
    )
