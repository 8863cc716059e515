"""Remove TensorFlow's graph rewrite for mixed precision.

     import tensorflow as tf
     opt = tf.train.MomentumOptimizer(0.1, 0.9)
    -opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt)
     step = opt.minimize(loss)

The graph rewrite is for NVIDIA GPUs. `--precision allow_mix_precision` sets the device's mode instead.
Without loss_scale=None the rewrite also scaled the loss: that needs manual review. Assignments of
TF_ENABLE_AUTO_MIXED_PRECISION in os.environ are removed.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import sole_target
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._optimizers import unwrap_optimizer

rule = Rule(__name__, target_needs="loss_scale", spec_rows=("L4",))

REWRITES = (
    "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite",
    "tensorflow.mixed_precision.enable_mixed_precision_graph_rewrite",
    "tensorflow.mixed_precision.experimental.enable_mixed_precision_graph_rewrite",
)
VARIABLES = ("TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE")


@rule.call(*REWRITES)
def remove_rewrite(site: Site) -> None:
    optimizer = site.argument("opt", 0) or site.argument("optimizer", 0)
    if optimizer is None or not site.is_editable:
        site.request_review(
            "mixed precision by graph rewrite: remove it and set precision_mode instead",
            zh="图改写方式的混合精度:请删除,并改用 precision_mode",
            risk="high",
        )
        return
    unwrap_optimizer(site, optimizer)
    site.report_change(
        "the graph rewrite is removed: set the device's precision_mode instead (--precision allow_mix_precision)",
        zh="已删除图改写混合精度;请使用设备的 precision_mode(--precision allow_mix_precision)",
    )
    scale = site.argument("loss_scale", 1)
    if scale is None or not is_none(scale):
        scale_text = site.text_of(scale) if scale is not None else "dynamic"
        site.request_review(
            f"the rewrite also scaled the loss ({scale_text}): wrap the optimizer in NPULossScaleOptimizer with "
            "a FixedLossScaleManager or ExponentialUpdateLossScaleManager if fp16 needs it",
            zh=f"图改写同时做了 loss scale({scale_text}):如 fp16 需要,请用 NPULossScaleOptimizer 配合 "
            "FixedLossScaleManager 或 ExponentialUpdateLossScaleManager 包装优化器",
        )


@rule.node(ast.Constant, only_if_file_contains=("TF_ENABLE_AUTO_MIXED_PRECISION",))
def remove_variable(site: Site) -> None:
    if site.node.value not in VARIABLES:
        return
    statement = site.source.statement_around(site.node)
    target = sole_target(statement)
    is_key = isinstance(target, ast.Subscript) and target.slice is site.node
    if is_key and site.qualified_name(target.value) == "os.environ":  # type: ignore[union-attr]
        site.edit.remove_statement(statement)
        site.report_change(
            f"{site.node.value} has no effect on the device: removed; use --precision",
            zh=f"{site.node.value} 对昇腾设备无效:已删除;请使用 --precision",
            node=statement,
        )
