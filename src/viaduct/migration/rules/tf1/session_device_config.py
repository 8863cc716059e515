"""Drop the settings of `tf.config` for GPUs.

     import tensorflow as tf
     gpus = tf.config.experimental.list_physical_devices("GPU")
     for gpu in gpus:
    -    tf.config.experimental.set_memory_growth(gpu, True)
    +    pass
    -tf.config.set_soft_device_placement(False)
    +tf.config.set_soft_device_placement(True)

Memory growth and virtual devices are GPU matters: the statements are removed, a memory limit elsewhere becomes None.
Soft placement stays on, since operators without a device kernel run on the host. Grappler's experimental options
become those of the vendor. A call whose result is used needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="S12", kind="mandatory")

GROWTH = "set_memory_growth"
VIRTUAL = ("set_virtual_device_configuration", "set_logical_device_configuration")
REMOVED = tuple(f"tensorflow.config.{part}{name}" for part in ("", "experimental.") for name in (GROWTH, *VIRTUAL))
LIMITS = ("tensorflow.config.experimental.VirtualDeviceConfiguration", "tensorflow.config.LogicalDeviceConfiguration")


@rule.call(*REMOVED)
def remove(site: Site) -> None:
    statement = site.source.parents[site.node]
    what = site.name.rpartition(".")[2]
    if not isinstance(statement, ast.Expr):
        site.manual(f"{what} is for GPUs: remove it", zh=f"{what} 仅用于 GPU,请删除")
        return
    site.edit.remove_statement(statement)
    site.changed(f"{what} is for GPUs and is removed", zh=f"{what} 仅用于 GPU,已删除")


@rule.call(*LIMITS)
def remove_limit(site: Site) -> None:
    around = [site.qualified(node.func) for node in site.source.ancestors(site.node) if isinstance(node, ast.Call)]
    limit = site.argument("memory_limit", 0)
    if any(name in REMOVED for name in around) or limit is None:
        return
    if not (isinstance(limit, ast.Constant) and limit.value is None):
        site.set_argument("memory_limit", "None", 0)
        site.changed("memory limits are for GPUs: None", zh="显存限制仅用于 GPU,改为 None")


@rule.call("tensorflow.config.set_soft_device_placement")
def keep_soft_placement(site: Site) -> None:
    value = site.argument("enabled", 0)
    if value is not None and not (isinstance(value, ast.Constant) and value.value is True):
        site.set_argument("enabled", "True", 0)
        site.changed("soft placement stays on", zh="保持 soft placement 开启")


@rule.call("tensorflow.config.optimizer.set_experimental_options")
def replace_experimental_options(site: Site) -> None:
    value = site.argument("options", 0)
    ours = full_name("experimental_options")
    if value is None or site.qualified(value) == ours:
        return
    dropped = site.text(value)
    site.set_argument("options", site.need("experimental_options"), 0)
    site.changed(
        f"Grappler's options become the vendor's; dropped: {dropped}",
        zh=f"改用厂商提供的 experimental_options;原值 {dropped} 已去除",
        risk="medium",
    )
