"""Report code that already supports the card beside CUDA and therefore stays.

     import torch
     def wait(device: torch.device) -> None:
         if device.type == "cuda":
             torch.cuda.synchronize()
         elif device.type == "npu":
             torch.npu.synchronize()

Code with a branch, an entry of a table or a function for each card stays, so that CUDA still works. A branch for CUDA
whose `else` uses torch.accelerator also stays. Other code for CUDA is migrated.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import ALL_CARDS, Rule, Site

rule = Rule(__name__, spec_rows=("P1", "6"), category="advice", targets=ALL_CARDS)


@rule.file(only_if_file_contains=("cuda", "CUDA", "nccl", "NCCL"))
def report_code_for_card(site: Site) -> None:
    """Advise on each construct that supports the card already; find_target_code has found them before all rules."""
    title = site.target.card.title
    for line in sorted(set(site.file.target_code_lines.values())):
        site.advise(
            f"this code supports the {title}, or any device, beside CUDA: it stays as it is",
            zh=f"此处除 CUDA 外已支持 {title} 或任意设备:保持不变",
            node=ast.Pass(lineno=line, end_lineno=line, col_offset=0),  # the finding takes only its position
        )
