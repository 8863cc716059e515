"""Remove the settings of `tf.config` for GPUs.

     import tensorflow as tf
     gpus = tf.config.experimental.list_physical_devices("GPU")
     for gpu in gpus:
    -    tf.config.experimental.set_memory_growth(gpu, True)
    +    pass
    -tf.config.set_soft_device_placement(False)
    +tf.config.set_soft_device_placement(True)

Memory growth and virtual devices are for GPUs: the statements are removed, and other memory limits become None. Soft
placement stays on, since operators without a device kernel run on the host. Ascend's experimental options replace those
of Grappler, TensorFlow's graph optimizer. A call whose result is used needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import is_within_call
from viaduct.migration.predicates import is_constant, is_none_or_absent
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="compiler", spec_rows=("S12",))

REMOVED_FUNCTIONS = tuple(
    f"tensorflow.config.{part}{name}"
    for part in ("", "experimental.")
    for name in ("set_memory_growth", "set_virtual_device_configuration", "set_logical_device_configuration")
)
LIMIT_CLASSES = (
    "tensorflow.config.experimental.VirtualDeviceConfiguration",
    "tensorflow.config.LogicalDeviceConfiguration",
)


@rule.call(*REMOVED_FUNCTIONS)
def remove_gpu_setting(site: Site) -> None:
    """Remove a statement that calls one of REMOVED_FUNCTIONS; report a call whose result is used."""
    statement = site.source.parents[site.node]
    function = site.name.rpartition(".")[2]
    if not isinstance(statement, ast.Expr):
        site.request_review(f"{function} is for GPUs: remove it", zh=f"{function} 仅用于 GPU,请删除")
        return
    site.edit.remove_statement(statement)
    site.report_change(f"{function} is for GPUs and is removed", zh=f"{function} 仅用于 GPU,已删除")


@rule.call(*LIMIT_CLASSES)
def remove_limit(site: Site) -> None:
    """Replace a memory limit by None, unless the statement around it is removed."""
    is_removed = is_within_call(site, site.node, REMOVED_FUNCTIONS)
    if not is_removed and not is_none_or_absent(site.argument("memory_limit", 0)):
        site.set_argument("memory_limit", "None", 0)
        site.report_change("memory limits are for GPUs: set to None", zh="显存限制仅用于 GPU,改为 None")


@rule.call("tensorflow.config.set_soft_device_placement")
def keep_soft_placement(site: Site) -> None:
    value = site.argument("enabled", 0)
    if value is not None and not is_constant(value, True):
        site.set_argument("enabled", "True", 0)
        site.report_change("soft placement stays on", zh="保持 soft placement 开启")


@rule.call("tensorflow.config.optimizer.set_experimental_options")
def replace_experimental_options(site: Site) -> None:
    """Replace Grappler's options by Ascend's, and report the dropped ones."""
    value = site.argument("options", 0)
    if value is None or site.qualified_name(value) == full_name("experimental_options"):
        return
    dropped = site.text_of(value)
    site.set_argument("options", site.import_npu_name("experimental_options"), 0)
    site.report_change(
        f"Grappler's options become the vendor's; dropped: {dropped}",
        zh=f"改用厂商提供的 experimental_options;原值 {dropped} 已去除",
        risk="medium",
    )
