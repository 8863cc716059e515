"""Advise on commands that query NVIDIA's cards.

    import subprocess
    import torch
    subprocess.run(["nvidia-smi"])

nvidia-smi has counterparts in `npu-smi info` and `cnmon`, with other options and output, so nothing is rewritten.
The launchers, torchrun and torch.distributed.launch, stay as they are: each process sets its device from LOCAL_RANK
before its first tensor. Python code that stands in a shell script (`python -c`, a here-document) is not migrated.
"""

from __future__ import annotations

import ast

from viaduct.cards import CARDS, CUDA
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="P27", kind="advice", targets=("npu", "mlu", "any"), last=True)

MONITOR = CUDA.tool
MONITORS = {name: card.tool for name, card in CARDS.items()}


@rule.node(ast.Constant, ast.JoinedStr, words=(MONITOR,))
def monitor(site: Site) -> None:
    """Report a command that calls nvidia-smi."""
    text = site.text(site.node) if isinstance(site.node, ast.JoinedStr) else site.node.value
    if (
        not isinstance(text, str)
        or MONITOR not in text
        or site.source.in_f_string(site.node)
        or not is_in_torch_program(site)
    ):
        return
    calls = [parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call)]
    run = any((site.qualified(call.func) or "").startswith(("os.", "subprocess.", "shutil.which")) for call in calls)
    if run or is_command(site, text):
        english, chinese = on_monitor(site.options.to)
        site.advice(english, zh=chinese)


def is_command(site: Site, text: str) -> bool:
    """`command = "nvidia-smi -L"`, to be run further on."""
    holder = site.source.statement(site.node)
    return text.lstrip("\"'").startswith(f"{MONITOR} ") and isinstance(holder, ast.Assign | ast.AnnAssign)


def on_monitor(to: str) -> tuple[str, str]:
    """Return what to say of nvidia-smi on a target."""
    if to in MONITORS:
        like = MONITORS[to]
        return f"{MONITOR} knows NVIDIA's cards only; use `{like}` here, which has another output", (
            f"{MONITOR} 只认识 NVIDIA 设备;此处请用 `{like}`,其输出格式不同"
        )
    likes = " and ".join(f"`{like}`" for like in MONITORS.values())
    return f"{MONITOR} knows NVIDIA's cards only; others have {likes}, with another output", (
        f"{MONITOR} 只认识 NVIDIA 设备;其他设备请用 {likes},其输出格式不同"
    )


def on_launcher(root: str) -> tuple[str, str]:
    """Return what to say of a launcher that stays."""
    return (
        f"the launcher stays: make sure that every process calls {root}.set_device(LOCAL_RANK) before its first tensor",
        f"启动命令保持不变:请确保每个进程在创建张量之前调用 {root}.set_device(LOCAL_RANK)",
    )
