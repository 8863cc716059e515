"""Advise to set the device before the first tensor is created.

    import os
    import torch
    import torch.distributed as dist
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("hccl")

The launch commands of torchrun and torch.distributed.launch stay. But a process that creates a tensor before it sets
its device creates it on device 0, in every rank. A file that starts communication, reads its rank and never sets a
device gets the advice to call `set_device(local_rank)`.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import literal_text
from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(__name__, spec_rows=("P27",), category="advice", targets=ALL_TARGETS, runs_last=True)

RANK_TEXTS = ("LOCAL_RANK", "--local_rank", "--local-rank")
SETTERS = ("set_device", "set_device_index", "device_index")  # the last one is the helper's


@rule.call("torch.distributed.init_process_group")
def advise_setting_device(site: Site) -> None:
    """Advise on a script that reads its local rank and sets no device."""
    if sets_device(site) or not reads_rank(site):
        return
    function = (
        "torch.accelerator.set_device_index"
        if site.target.is_any_card
        else f"{site.target.card.torch_module}.set_device"
    )
    setter = f"{function}(local_rank)"
    site.advise(
        f"no device is set in this file: call {setter} before the first tensor, else every rank begins on device 0",
        zh=f"本文件未设置设备:请在创建张量之前调用 {setter},否则所有进程都会使用 0 号设备",
    )


def sets_device(site: Site) -> bool:
    """Return True if the file sets a device, through torch or through the helper of --to any."""
    roots = ("torch.", f"{site.file.project.helper_module_of(site.file.path)}.")
    return any(name.startswith(roots) and name.rpartition(".")[2] in SETTERS for name in site.file.index.calls)


def reads_rank(site: Site) -> bool:
    """Return True if the file mentions the variable LOCAL_RANK or the launcher's option --local_rank."""
    texts = map(literal_text, site.source.nodes_of_type(ast.Constant))
    return "local_rank" in site.source.attributes or any(text in RANK_TEXTS for text in texts)
