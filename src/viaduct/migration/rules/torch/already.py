"""Report code that serves the card beside CUDA already.

     import torch
     def wait(device: torch.device) -> None:
         if device.type == "cuda":
             torch.cuda.synchronize()
         elif device.type == "npu":
             torch.npu.synchronize()

A place that has a branch, an entry of a table or a function for each card is left as it is, so that CUDA still works.
So is a branch for CUDA whose `else` asks torch.accelerator. Code for CUDA outside of such places is migrated.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import card

rule = Rule(__name__, category="advice", targets=("npu", "mlu"))


@rule.file(only_files_with=("cuda", "CUDA", "nccl", "NCCL"))
def report_served_code(site: Site) -> None:
    """Report each place with such code (see target_code.py)."""
    title = card(site.options).title
    for line in sorted(set(site.work.target_code_lines.values())):
        site.advise(
            f"this code serves the {title}, or any device, beside CUDA: left as it is",
            zh=f"此处除 CUDA 外已支持 {title} 或任意设备:保持不变",
            node=ast.Pass(lineno=line, end_lineno=line, col_offset=0),
        )
