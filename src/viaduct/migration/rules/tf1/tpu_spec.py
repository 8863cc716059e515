"""Turn a TPUEstimatorSpec into an NPUEstimatorSpec.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_estimator import NPUEstimatorSpec
    -spec = tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    +spec = NPUEstimatorSpec(mode=mode, loss=loss, eval_metric_ops=metric_fn(*[labels, logits]))

eval_metrics is a function with its tensors, called later on a TPU's host; here it is called at once. scaffold_fn
becomes scaffold in the same way. A pair that is not written out is left to a person.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="E12 E13", kind="mandatory", order=31)

TPU = "tensorflow.estimator.tpu"


@rule.call(f"{TPU}.TPUEstimatorSpec")
def convert(site: Site) -> None:
    if site.options.tpu == "keep":
        return
    metrics = site.keyword("eval_metrics")
    pair = metrics.value if metrics else None
    if pair is not None and not (isinstance(pair, ast.Tuple) and len(pair.elts) == 2):
        origin = site.values.origin(pair)
        if not (isinstance(origin, ast.Constant) and origin.value is None):
            site.manual(
                "eval_metrics is not a pair written out: NPUEstimatorSpec takes eval_metric_ops=function(*tensors)",
                zh="eval_metrics 不是字面量二元组:NPUEstimatorSpec 需要 eval_metric_ops=函数(*张量)",
                risk="high",
            )
            return
    site.rename(site.need("NPUEstimatorSpec"))
    if metrics is not None and isinstance(pair, ast.Tuple):
        site.edit.node(metrics, f"eval_metric_ops={called(site, pair)}")
    elif metrics is not None:
        site.edit.node(metrics, "eval_metric_ops=None")
    scaffold = site.keyword("scaffold_fn")
    if scaffold is not None:
        site.edit.node(scaffold, f"scaffold={scaffold_text(site, scaffold.value)}")
    site.changed("TPUEstimatorSpec becomes NPUEstimatorSpec", zh="TPUEstimatorSpec 替换为 NPUEstimatorSpec")


def called(site: Site, pair: ast.Tuple) -> str:
    function, tensors = (site.text(part) for part in pair.elts)
    return f"{function}(**{tensors})" if isinstance(pair.elts[1], ast.Dict) else f"{function}(*{tensors})"


def scaffold_text(site: Site, value: ast.expr) -> str:
    if isinstance(value, ast.Constant) and value.value is None:
        return "None"
    text = site.text(value)
    return f"{text}() if {text} else None" if isinstance(value, ast.Name | ast.Attribute) else f"({text})()"


@rule.call(f"{TPU}.CrossShardOptimizer")
def unwrap(site: Site) -> None:
    optimizer = site.argument("opt", 0)
    if optimizer is None or not site.editable:
        return
    statement = site.source.statement(site.node)
    plain = isinstance(statement, ast.Assign) and statement.value is site.node and len(statement.targets) == 1
    if plain and ast.unparse(statement.targets[0]) == ast.unparse(optimizer):  # type: ignore[attr-defined]
        site.edit.remove_statement(statement)
    else:
        site.edit.node(site.node, site.text(optimizer))
    site.changed(
        "CrossShardOptimizer is for TPUs: the optimizer itself stays", zh="CrossShardOptimizer 仅用于 TPU:保留原优化器"
    )
