"""Remove the choice of a GPU by Horovod's rank.

     import horovod.tensorflow as hvd
     import tensorflow as tf
     config = tf.ConfigProto()
    -config.gpu_options.visible_device_list = str(hvd.local_rank())
     config.allow_soft_placement = True

ASCEND_DEVICE_ID or DEVICE_ID, which the start script sets for each process, chooses the NPU. The rule also removes a
choice by rank from CUDA_VISIBLE_DEVICES, tf.GPUOptions and tf.config.set_visible_devices.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, target_needs="communication", spec_rows=("S7", "2.8"))

CONFIG_FIELD = "visible_device_list"
ENVIRONMENT_VARIABLE = "CUDA_VISIBLE_DEVICES"
CHOOSING_FUNCTIONS = ("tensorflow.config.experimental.set_visible_devices", "tensorflow.config.set_visible_devices")


@rule.node(ast.Assign, only_if_file_contains=("local_rank",))
def remove_assignment(site: Site) -> None:
    target = site.node.targets[0]
    if len(site.node.targets) == 1 and is_device_choice(site, target) and is_by_rank(site, site.node.value):
        site.edit.remove_statement(site.node)
        report_removed(site)


def is_device_choice(site: Site, target: ast.expr) -> bool:
    """Return True for the field visible_device_list of a config, and for `os.environ["CUDA_VISIBLE_DEVICES"]`."""
    if isinstance(target, ast.Attribute):
        return target.attr == CONFIG_FIELD
    if not isinstance(target, ast.Subscript) or not is_literal_in(target.slice, ENVIRONMENT_VARIABLE):
        return False
    return site.qualified_name(target.value) == "os.environ"


def is_by_rank(site: Site, value: ast.AST) -> bool:
    """Return True if a value contains `hvd.local_rank()` or `hvd.rank()`, and Horovod is replaced in this program."""
    return horovod.calls_any(site, value, "local_rank", "rank") and not horovod.keeps_horovod(site)


def report_removed(site: Site) -> None:
    site.report_change(
        f"{NPU.device_variable} or DEVICE_ID chooses the device: removed",
        zh=f"设备由环境变量 {NPU.device_variable} 或 DEVICE_ID 指定:已删除",
    )


@rule.call("tensorflow.GPUOptions")
def remove_gpu_option(site: Site) -> None:
    keyword = site.keyword(CONFIG_FIELD)
    if keyword is not None and is_by_rank(site, keyword.value) and site.is_editable:
        site.remove_argument(keyword)
        report_removed(site)


@rule.call(*CHOOSING_FUNCTIONS)
def remove_visible_devices(site: Site) -> None:
    statement = site.source.parents[site.node]
    if isinstance(statement, ast.Expr) and is_by_rank(site, site.node):
        site.edit.remove_statement(statement)
        report_removed(site)
