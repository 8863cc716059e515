"""Ask for the device to be chosen before the first tensor.

    import os
    import torch
    import torch.distributed as dist
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("hccl")

torchrun and torch.distributed.launch start the ranks as they do with CUDA, and the launch commands stay. But a process
that makes a tensor before it has chosen its device makes it on device 0, in every rank: `set_device(local_rank)`
belongs directly behind the place where the rank is read. Files that start communication, read their rank and never set
a device are named.
"""

from __future__ import annotations

import ast

from viaduct.cards import CARDS
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="P27", kind="advice", targets=("npu", "mlu", "any"), last=True)

INIT = "torch.distributed.init_process_group"
SETS = ("set_device", "set_device_index", "device_index")


@rule.call(INIT)
def look_for_device(site: Site) -> None:
    """Report a script that reads its local rank and sets no device."""
    if sets_device(site) or not reads_rank(site):
        return
    module = CARDS[site.options.to].root if site.options.to in CARDS else "torch.accelerator"
    setter = (
        f"{module}.set_device(local_rank)" if site.options.to in CARDS else f"{module}.set_device_index(local_rank)"
    )
    site.advice(
        f"no device is set in this file: {setter} before the first tensor, else every rank begins on device 0",
        zh=f"本文件未设置设备:请在创建张量之前调用 {setter},否则所有进程都会使用 0 号设备",
    )


def sets_device(site: Site) -> bool:
    """Through torch, or through the helper of --to any."""
    roots = ("torch.", f"{site.work.project.helper_of(site.work.path)}.")
    called = {name.rpartition(".")[2] for name in site.work.index.calls if name.startswith(roots)}
    return not called.isdisjoint(SETS)


def reads_rank(site: Site) -> bool:
    """LOCAL_RANK in the environment, or an option that the launcher fills."""
    for node in site.source.nodes:
        if isinstance(node, ast.Constant) and node.value in ("LOCAL_RANK", "--local_rank", "--local-rank"):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "local_rank":
            return True
    return False
