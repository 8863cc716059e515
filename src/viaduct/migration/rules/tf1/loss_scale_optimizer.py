"""Replace TensorFlow's loss scale optimizer by the NPU's.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
    -opt = tf.contrib.mixed_precision.LossScaleOptimizer(opt, manager)
    +opt = NPULossScaleOptimizer(opt, manager)

NPULossScaleOptimizer skips the update and lowers the scale when the device reports an overflow. With `--distributed` it
gets is_distributed=True.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="loss_scale", spec_rows=("L3",))

LOSS_SCALE_OPTIMIZERS = (
    "tensorflow.contrib.mixed_precision.LossScaleOptimizer",
    "tensorflow.train.experimental.MixedPrecisionLossScaleOptimizer",
    "tensorflow.python.training.experimental.loss_scale_optimizer.MixedPrecisionLossScaleOptimizer",
)


@rule.call(*LOSS_SCALE_OPTIMIZERS)
def convert_optimizer(site: Site) -> None:
    """Replace the optimizer, and report a loss scale that may be no manager of the device."""
    if not site.is_editable:
        return
    site.rename(site.import_npu_name("NPULossScaleOptimizer"))
    if (keyword := site.keyword("loss_scale")) is not None:
        site.edit.rename_keyword(keyword, "loss_scale_manager")
    if site.options.distributed:
        site.edit.add_argument(site.node, "is_distributed=True")
    site.report_change("the loss is scaled by NPULossScaleOptimizer", zh="改用 NPULossScaleOptimizer 进行 loss scale")
    scale = site.argument("loss_scale", 1) or site.argument("loss_scale_manager", 1)
    if scale is None and site.has_unpacked_arguments:
        site.request_review(
            "arguments are unpacked here: loss_scale is called loss_scale_manager now, and must be an NPU loss scale "
            "manager",
            zh="此处参数为解包形式:loss_scale 现名为 loss_scale_manager,且须为 NPU 的 loss scale 管理器",
        )
    elif scale is not None and not is_npu_manager(site, scale):
        site.request_review(
            f"{site.text_of(scale)} must be an NPU loss scale manager: FixedLossScaleManager or "
            "ExponentialUpdateLossScaleManager",
            zh=f"{site.text_of(scale)} 须为 NPU 的 loss scale 管理器:"
            "FixedLossScaleManager 或 ExponentialUpdateLossScaleManager",
            node=scale,
        )


def is_npu_manager(site: Site, node: ast.expr) -> bool:
    """Return True for a loss scale manager of the device that is created in this file."""
    origin = site.values.assigned_value(node)
    return "npu_loss_scale_manager" in (site.qualified_name(getattr(origin, "func", origin)) or "")
