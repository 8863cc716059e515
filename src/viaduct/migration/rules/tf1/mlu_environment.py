"""Replace environment variables for GPUs by the MLU's.

     import os
     import tensorflow as tf
    -os.environ["TF_GPU_THREAD_MODE"] = "gpu_private"
    +os.environ["TF_MLU_THREAD_MODE"] = "gpu_private"

Cambricon's TensorFlow has counterparts of TF_GPU_THREAD_MODE and TF_GPU_THREAD_COUNT, its runtime one of
CUDA_VISIBLE_DEVICES. Values stay. In PyTorch programs torch.visible_devices edits CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import ast

from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._environment_variables import is_variable_name

rule = Rule(__name__, target_needs="placement", spec_rows=("6.1",), targets=("mlu",))

VARIABLES = {
    "TF_GPU_THREAD_MODE": "TF_MLU_THREAD_MODE",
    "TF_GPU_THREAD_COUNT": "TF_MLU_THREAD_COUNT",
    "CUDA_VISIBLE_DEVICES": "MLU_VISIBLE_DEVICES",
}


@rule.node(ast.Constant, only_if_file_contains=tuple(VARIABLES))
def rename_variable(site: Site) -> None:
    if site.node.value not in VARIABLES or not is_variable_name(site, site.node) or not site.is_editable:
        return
    old, new = site.node.value, VARIABLES[site.node.value]
    if old == "CUDA_VISIBLE_DEVICES" and is_in_torch_program(site):
        return  # torch.visible_devices checks the value too
    text = site.text_of(site.node)
    if old not in text:
        return  # a literal of several parts, or with escapes
    site.edit.replace_node(site.node, text.replace(old, new))
    site.report_change(f"{old} becomes {new}", zh=f"{old} 改为 {new}")
