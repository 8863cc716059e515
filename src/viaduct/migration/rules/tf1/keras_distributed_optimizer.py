"""Wrap Keras optimizers so that they average gradients over all ranks.

With `--distributed`:

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_optimizer import npu_distributed_optimizer_wrapper
     model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    -model.compile(optimizer="sgd", loss="mse")
    +model.compile(optimizer=npu_distributed_optimizer_wrapper("sgd"), loss="mse")

The wrapper takes an optimizer or its name. The rule edits `compile` of Keras models, and reports `compile` of an
unknown object with the keywords optimizer and loss.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import bindings_of
from viaduct.migration.options import is_distributed
from viaduct.migration.predicates import is_literal
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _keras

rule = Rule(__name__, target_needs="optimizers", spec_rows=("K5",), when=is_distributed)

WRAPPERS = (  # Ascend's and, last, Horovod's
    "KerasDistributeOptimizer", "npu_distributed_optimizer_wrapper", "npu_keras_optimizer", "DistributedOptimizer",
)  # fmt: skip


@rule.method("compile")
def wrap_optimizer(site: Site) -> None:
    """Wrap the optimizer of a model's compile, unless it is wrapped already."""
    if not _keras.is_model(site, site.node.func.value):
        report_possible_model(site)
        return
    optimizer = site.argument("optimizer", 0)
    is_named = is_literal(optimizer) and _keras.is_standalone(site)
    if optimizer is None or is_named:  # for a name the wrapper would create an optimizer of tensorflow.keras
        site.request_review(
            "make sure that the optimizer of this model is wrapped in npu_distributed_optimizer_wrapper",
            zh="请确认该模型的优化器已用 npu_distributed_optimizer_wrapper 包装",
        )
    elif not is_wrapped(site, optimizer) and site.is_editable:
        site.edit.enclose(optimizer, f"{site.import_npu_name('npu_distributed_optimizer_wrapper')}(")
        site.report_change("the optimizer averages gradients over all ranks", zh="优化器在各 rank 间对梯度求平均")


def is_wrapped(site: Site, optimizer: ast.expr) -> bool:
    """Return True if the optimizer, or a value of its variable, is the result of one of the wrappers."""
    bindings = bindings_of(site, optimizer) if isinstance(optimizer, ast.Name) else []
    values = [value for value in (optimizer, *bindings) if isinstance(value, ast.Call)]
    names = [site.qualified_name(value.func) or "" for value in values]
    return any(name.rpartition(".")[2] in WRAPPERS for name in names)


def report_possible_model(site: Site) -> None:
    """Report a `compile` of an unknown object with the keywords optimizer and loss."""
    keywords = {keyword.arg for keyword in site.node.keywords}
    if _keras.has_unknown_origin(site, site.node.func.value) and {"optimizer", "loss"} <= keywords:
        site.request_review(
            "if this is a Keras model, wrap its optimizer: npu_distributed_optimizer_wrapper(…)",
            zh="若此处是 Keras 模型,请用 npu_distributed_optimizer_wrapper(…) 包装优化器",
        )
