"""Replace Horovod's DistributedOptimizer by the NPU's.

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
    -opt = hvd.DistributedOptimizer(opt, compression=hvd.Compression.fp16)
    +opt = NPUDistributedOptimizer(opt)

Other arguments have no counterpart and are dropped; keywords that change the result need manual review. For a Keras
optimizer the wrapper is KerasDistributeOptimizer. A wrapper of a loss scale optimizer is removed: with `--distributed`
distribute_optimizer wraps the inner optimizer.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import bindings_of, sole_target
from viaduct.migration.predicates import is_constant, is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, target_needs="optimizers", spec_rows=("2.8",))

# Keyword arguments that change the result of the training.
RESULT_ARGUMENTS = {
    "op": ("gradients are always averaged", "梯度固定取平均"),
    "backward_passes_per_step": ("gradients are exchanged at every step", "每步都做梯度聚合"),
    "gradient_predivide_factor": ("gradients are always averaged", "梯度固定取平均"),
    "average_aggregated_gradients": ("gradients are exchanged at every step", "每步都做梯度聚合"),
}


@horovod.register_call(rule, "DistributedOptimizer")
def wrap_optimizer(site: Site) -> None:
    optimizer = site.argument("optimizer", 0)
    if optimizer is None or not site.is_editable or site.has_unpacked_arguments:
        horovod.request_manual_change(
            site, "wrap the optimizer in NPUDistributedOptimizer", "请用 NPUDistributedOptimizer 包装优化器"
        )
    elif is_loss_scaled(site, optimizer):
        remove_wrapper(site, optimizer)
    else:
        site.rename(site.import_npu_name(choose_wrapper(site, optimizer)))
        kept = optimizer if optimizer in site.node.args else site.keyword("optimizer")
        others = [argument for argument in [*site.node.args, *site.node.keywords] if argument is not kept]
        site.remove_arguments(others)
        dropped = ", ".join(map(site.text_of, others))
        site.report_change(
            "gradients are averaged by the accelerator's optimizer" + (f"; dropped: {dropped}" if dropped else ""),
            zh="改用 NPU 分布式优化器对梯度求平均" + (f";删除参数:{dropped}" if dropped else ""),
        )
        report_result_arguments(site)


def choose_wrapper(site: Site, optimizer: ast.expr) -> str:
    """Return the NPU's counterpart of the wrapper, for an optimizer of TensorFlow or of Keras."""
    is_keras = site.name.rpartition(".")[0] in horovod.KERAS_MODULES or site.values.kind(optimizer) == "keras_optimizer"
    if site.options.style == "wrapper":
        return "npu_distributed_optimizer_wrapper"
    return "KerasDistributeOptimizer" if is_keras else "NPUDistributedOptimizer"


def report_result_arguments(site: Site) -> None:
    """Report the dropped arguments that change the result of the training, unless they have Horovod's default."""
    for keyword in site.node.keywords:
        is_average = (site.qualified_name(keyword.value) or "").endswith(".Average")
        is_one = is_literal_in(keyword.value, 1) and not is_constant(keyword.value, True)  # True equals 1
        is_default = is_one or is_constant(keyword.value, False)
        if keyword.arg in RESULT_ARGUMENTS and not is_average and not is_default:
            reason, zh = RESULT_ARGUMENTS[keyword.arg]
            argument = site.text_of(keyword)
            site.request_review(f"{argument} has no counterpart: {reason}", zh=f"丢失 {argument}:{zh}")


def is_loss_scaled(site: Site, optimizer: ast.expr) -> bool:
    """Return True for a loss scale optimizer, or a variable that gets one before the site."""
    bindings = bindings_of(site, optimizer) if isinstance(optimizer, ast.Name) else []
    values = [value for value in (optimizer, *bindings) if isinstance(value, ast.Call)]
    return any(
        value.lineno <= site.node.lineno and site.values.kind(value) == "loss_scale_optimizer" for value in values
    )


def remove_wrapper(site: Site, optimizer: ast.expr) -> None:
    """Replace the wrapper by its optimizer; remove the statement if it would become `opt = opt`."""
    parent = site.source.parents[site.node]
    target = sole_target(parent) if isinstance(parent, ast.Assign) else None
    if isinstance(parent, ast.Assign) and target is not None and ast.unparse(target) == ast.unparse(optimizer):
        site.edit.remove_statement(parent)
    elif not horovod.replace_call(site, site.text_of(optimizer)):
        horovod.request_manual_change(
            site, "wrap the inner optimizer in NPUDistributedOptimizer", "请用 NPUDistributedOptimizer 包装内层优化器"
        )
        return
    site.report_change(
        "Horovod's wrapper of a loss scale optimizer is removed: --distributed wraps the inner optimizer instead",
        zh="loss scale 优化器只包装其内层优化器(--distributed),此处不再包装",
    )
