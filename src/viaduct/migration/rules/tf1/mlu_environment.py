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
from viaduct.migration.rules.torch._environment_variables import ENVIRONMENT_FUNCTIONS

rule = Rule(__name__, requirement="placement", rows=("6.1",), targets=("mlu",))

VARIABLES = {
    "TF_GPU_THREAD_MODE": "TF_MLU_THREAD_MODE",
    "TF_GPU_THREAD_COUNT": "TF_MLU_THREAD_COUNT",
    "CUDA_VISIBLE_DEVICES": "MLU_VISIBLE_DEVICES",
}


@rule.node(ast.Constant, only_if_file_contains=tuple(VARIABLES))
def rename_variable(site: Site) -> None:
    if site.node.value not in VARIABLES or not is_environment_key(site) or not site.is_editable:
        return
    old, new = site.node.value, VARIABLES[site.node.value]
    if old == "CUDA_VISIBLE_DEVICES" and is_in_torch_program(site):
        return  # torch.visible_devices checks the value too
    text = site.text_of(site.node)
    if old not in text:
        return  # a literal of several parts, or with escapes
    site.edit.replace_node(site.node, text.replace(old, new))
    site.report_change(f"{old} becomes {new}", zh=f"{old} 改为 {new}")


def is_environment_key(site: Site) -> bool:
    """Return True for a string that is a key of os.environ, or the name of a variable for a function of os."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.Subscript):
        return site.qualified_name(parent.value) == "os.environ"
    if not isinstance(parent, ast.Call) or not parent.args or parent.args[0] is not site.node:
        return False
    return site.qualified_name(parent.func) in ENVIRONMENT_FUNCTIONS
