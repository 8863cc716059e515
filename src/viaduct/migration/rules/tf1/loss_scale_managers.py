"""Replace TensorFlow's loss scales by the NPU's loss scale managers.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_loss_scale_manager import ExponentialUpdateLossScaleManager
    +from npu_bridge.estimator.npu.npu_loss_scale_manager import FixedLossScaleManager
    -fixed = tf.train.experimental.FixedLossScale(128)
    -moving = tf.train.experimental.DynamicLossScale(increment_period=500)
    +fixed = FixedLossScaleManager(128)
    +moving = ExponentialUpdateLossScaleManager(incr_every_n_steps=500, init_loss_scale=2**15)

The device reports an overflow in its status; TensorFlow's objects, which test for infinities, do not notice it. The
names of the arguments differ. Defaults of TensorFlow that the manager does not have are written out.
"""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="loss_scale", spec_rows=("L1", "L2"))

DYNAMIC_PARAMETERS = ("initial_loss_scale", "increment_period", "multiplier")  # DynamicLossScale's parameters, in order
NEW_NAMES = {  # TensorFlow's parameter -> the managers' parameter
    "initial_loss_scale": "init_loss_scale",
    "increment_period": "incr_every_n_steps",
    "multiplier": "incr_ratio",
    "loss_scale_value": "loss_scale",
}
# The managers' parameter -> DynamicLossScale's default, which the manager does not have.
DEFAULTS = {"init_loss_scale": "2**15", "incr_every_n_steps": "2000"}


@rule.call(
    "tensorflow.train.experimental.FixedLossScale",
    "tensorflow.mixed_precision.experimental.FixedLossScale",
    "tensorflow.contrib.mixed_precision.FixedLossScaleManager",
)
def convert_fixed(site: Site) -> None:
    if any(keyword.arg is None for keyword in site.node.keywords) or not site.is_editable:
        report_unpacked(site, "FixedLossScale", "FixedLossScaleManager")
        return
    site.rename(site.import_npu_name("FixedLossScaleManager"))
    rename_keywords(site)
    site.report_change("FixedLossScale becomes FixedLossScaleManager", zh="FixedLossScale 替换为 FixedLossScaleManager")


@rule.call("tensorflow.train.experimental.DynamicLossScale", "tensorflow.mixed_precision.experimental.DynamicLossScale")
def convert_dynamic(site: Site) -> None:
    """Replace DynamicLossScale, rename its arguments and write out the defaults that the manager does not have."""
    if site.has_unpacked_arguments or not site.is_editable:
        report_unpacked(site, "DynamicLossScale", "ExponentialUpdateLossScaleManager")
        return
    site.rename(site.import_npu_name("ExponentialUpdateLossScaleManager"))
    site.pass_all_by_keyword(tuple(NEW_NAMES[name] for name in DYNAMIC_PARAMETERS))
    rename_keywords(site)
    present = {NEW_NAMES.get(keyword.arg or "", keyword.arg) for keyword in site.node.keywords}
    present |= {NEW_NAMES[name] for name in DYNAMIC_PARAMETERS[: len(site.node.args)]}
    missing = [f"{name}={value}" for name, value in DEFAULTS.items() if name not in present]
    if missing:
        site.edit.add_argument(site.node, ", ".join(missing))
    site.report_change(
        "DynamicLossScale becomes ExponentialUpdateLossScaleManager, which multiplies the scale by 0.8 at every second "
        "overflow; TensorFlow halves it at each",
        zh="DynamicLossScale 替换为 ExponentialUpdateLossScaleManager;后者每两次溢出乘以 0.8,TensorFlow 每次溢出即减半",
    )


@rule.call("tensorflow.contrib.mixed_precision.ExponentialUpdateLossScaleManager")
def convert_exponential(site: Site) -> None:
    if site.is_editable:
        site.rename(site.import_npu_name("ExponentialUpdateLossScaleManager"))
        site.report_change("contrib's loss scale manager becomes the device's", zh="contrib 的管理器替换为昇腾实现")


def report_unpacked(site: Site, old: str, new: str) -> None:
    site.request_review(
        f"arguments are unpacked into {old}; {new} has other names for them",
        zh=f"{old} 的参数以解包形式传入;{new} 的参数名不同",
    )


def rename_keywords(site: Site) -> None:
    """Give the keyword arguments the names that the managers use."""
    for keyword in site.node.keywords:
        if keyword.arg in NEW_NAMES:
            site.edit.rename_keyword(keyword, NEW_NAMES[keyword.arg])
