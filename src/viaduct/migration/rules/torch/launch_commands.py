"""Advise on commands that query NVIDIA's cards.

    import subprocess
    import torch
    subprocess.run(["nvidia-smi"])

The counterparts of nvidia-smi, `npu-smi info` and `cnmon`, have other options and output, so the rule only advises. The
launchers, torchrun and torch.distributed.launch, stay. Python code in a shell script (`python -c`, a here-document) is
not migrated.
"""

from __future__ import annotations

import ast

from viaduct.cards import CARDS, CUDA
from viaduct.cards.limits import Bilingual
from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(__name__, rows=("P27",), category="advice", targets=ALL_TARGETS, runs_last=True)

MONITOR = CUDA.monitor_command
MONITORS = {name: card.monitor_command for name, card in CARDS.items()}
RUNNERS = ("os.", "subprocess.", "shutil.which")


@rule.node(ast.Constant, ast.JoinedStr, only_if_file_contains=(MONITOR,))
def advise_monitor(site: Site) -> None:
    text = site.text_of(site.node) if isinstance(site.node, ast.JoinedStr) else literal_text(site.node)
    if MONITOR not in text or site.source.is_in_f_string(site.node) or not is_in_torch_program(site):
        return
    calls = [parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call)]
    is_run = any((site.qualified_name(call.func) or "").startswith(RUNNERS) for call in calls)
    if is_run or is_stored_command(site, text):
        site.advise(*monitor_advice(site.options.to))


def is_stored_command(site: Site, text: str) -> bool:
    """Return True for `command = "nvidia-smi -L"`, which is probably run later."""
    statement = site.source.statement_around(site.node)
    return text.lstrip("\"'").startswith(f"{MONITOR} ") and isinstance(statement, ast.Assign | ast.AnnAssign)


def monitor_advice(to: str) -> Bilingual:
    if to in MONITORS:
        return (
            f"{MONITOR} is for NVIDIA's cards only; use `{MONITORS[to]}` here, which has another output",
            f"{MONITOR} 只认识 NVIDIA 设备;此处请用 `{MONITORS[to]}`,其输出格式不同",
        )
    others = " and ".join(f"`{tool}`" for tool in MONITORS.values())
    return (
        f"{MONITOR} is for NVIDIA's cards only; other cards have {others}, with another output",
        f"{MONITOR} 只认识 NVIDIA 设备;其他设备请用 {others},其输出格式不同",
    )


def launcher_advice(root: str) -> Bilingual:
    """Return the advice about a launcher such as torchrun; `root` is the card's module, such as `torch.npu`."""
    return (
        f"the launcher stays: make sure that every process calls {root}.set_device(LOCAL_RANK) before its first tensor",
        f"启动命令保持不变:请确保每个进程在创建张量之前调用 {root}.set_device(LOCAL_RANK)",
    )
