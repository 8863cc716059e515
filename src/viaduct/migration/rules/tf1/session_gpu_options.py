"""Advise on settings that have no effect without a GPU.

`gpu_options`, `CUDA_VISIBLE_DEVICES`, `TF_XLA_FLAGS` and `TF_ENABLE_AUTO_MIXED_PRECISION` have no effect on the
accelerator: ASCEND_DEVICE_ID chooses the device, graph_memory_max_size its memory, precision_mode its precision. They
stay, unless horovod_devices or precision_graph_rewrite removes them.
"""

from __future__ import annotations

import ast

from viaduct.cards import CUDA, NPU
from viaduct.migration.lookups import literal_text
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as config_proto

rule = Rule(__name__, spec_rows=("S7",), category="advice", runs_last=True)

ALTERNATIVES = {  # variable, or its beginning -> advice in English and Chinese
    CUDA.visible_variable: (f"choose the device with {NPU.device_variable}", f"用 {NPU.device_variable} 选择设备"),
    "TF_XLA_FLAGS": ("XLA is off on the accelerator", "昇腾上 XLA 关闭"),
    "TF_ENABLE_AUTO_MIXED_PRECISION": ("choose the precision with --precision", "用 --precision 选择精度模式"),
}


@rule.node(ast.Assign, only_if_file_contains=("gpu_options", "GPUOptions", *ALTERNATIVES))
def advise_assignment(site: Site) -> None:
    """Advise on assignments to a field of gpu_options and to an environment variable."""
    for target in site.node.targets:
        if isinstance(target, ast.Attribute) and "gpu_options" in config_proto.get_field_path(site, target)[:-1]:
            advise_field(site, target.attr)
        elif isinstance(target, ast.Subscript) and site.qualified_name(target.value) == "os.environ":
            advise_variable(site, target.slice)


@rule.call("tensorflow.GPUOptions")
def advise_gpu_options(site: Site) -> None:
    advise_field(site, ", ".join(keyword.arg for keyword in site.node.keywords if keyword.arg) or "GPUOptions")


@rule.call("os.environ.setdefault", "os.putenv")
def advise_variable_call(site: Site) -> None:
    if site.node.args:
        advise_variable(site, site.node.args[0])


def advise_field(site: Site, fields: str) -> None:
    site.advise(f"gpu_options ({fields}) has no effect on the accelerator", zh=f"gpu_options({fields})在昇腾上不生效")


def advise_variable(site: Site, key: ast.expr) -> None:
    """Advise on an environment variable whose name begins with a key of ALTERNATIVES."""
    variable = literal_text(key)
    name = next((name for name in ALTERNATIVES if variable.startswith(name)), None)
    if name is not None:
        english, chinese = ALTERNATIVES[name]
        site.advise(
            f"{variable} has no effect on the accelerator: {english}", zh=f"{variable} 在昇腾上不生效:{chinese}"
        )
