"""Turn a TPUEstimatorSpec into an NPUEstimatorSpec.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_estimator import NPUEstimatorSpec
    -spec = tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    +spec = NPUEstimatorSpec(mode=mode, loss=loss, eval_metric_ops=metric_fn(*[labels, logits]))

eval_metrics is a pair of a function and its tensors, which a TPU's host calls later; the migrated script calls it at
once. scaffold_fn becomes scaffold in the same way. A pair of unknown origin, or one that is a positional argument,
needs manual review, and so do all other specs of the same function. A CrossShardOptimizer is replaced by the optimizer
in it.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import bindings_of, keyword_value
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._optimizers import unwrap_optimizer

rule = Rule(__name__, target_needs="estimators", spec_rows=("E12", "E13"))

TPU = "tensorflow.estimator.tpu"


@rule.call(f"{TPU}.TPUEstimatorSpec")
def convert_spec(site: Site) -> None:
    if site.options.tpu == "keep":
        return
    function = site.source.function_around(site.node)
    specs = [call for call in site.file.index.calls[site.name] if site.source.function_around(call) is function]
    unconvertible = [spec for spec in specs if not can_convert(site, spec)]
    if unconvertible:
        report_unconverted(site, is_cause=site.node in unconvertible)
        return
    site.rename(site.import_npu_name("NPUEstimatorSpec"))
    metrics = site.keyword("eval_metrics")
    if metrics is not None:
        site.edit.replace_node(metrics, f"eval_metric_ops={render_call(site, metrics.value)}")
    scaffold = site.keyword("scaffold_fn")
    if scaffold is not None:
        site.edit.replace_node(scaffold, f"scaffold={render_scaffold(site, scaffold.value)}")
    site.report_change("TPUEstimatorSpec becomes NPUEstimatorSpec", zh="TPUEstimatorSpec 替换为 NPUEstimatorSpec")


def can_convert(site: Site, spec: ast.Call) -> bool:
    metrics = keyword_value(spec, "eval_metrics")
    if len(spec.args) > 4:  # the fifth is eval_metrics
        return False
    return metrics is None or bool(find_possible_pairs(site, metrics)) or is_none(site.values.assigned_value(metrics))


def find_possible_pairs(site: Site, value: ast.expr) -> list[ast.Tuple]:
    """Return the pairs (function, tensors) that a value may be.

    [] if it may be anything but a pair or None, or if the tensors are a dict in some pairs only.
    """
    bindings = bindings_of(site, value) if isinstance(value, ast.Name) else [value]
    tuples = [binding for binding in bindings if isinstance(binding, ast.Tuple) and len(binding.elts) == 2]
    is_complete = len(tuples) == len([node for node in bindings if not is_none(node)])
    return tuples if is_complete and len({isinstance(pair.elts[1], ast.Dict) for pair in tuples}) == 1 else []


def report_unconverted(site: Site, is_cause: bool) -> None:
    """Report a spec that stays because it, or another one of the function, cannot be converted."""
    if is_cause:
        site.request_review(
            "eval_metrics is a positional argument or of unknown origin: NPUEstimatorSpec takes "
            "eval_metric_ops=function(*tensors)",
            zh="eval_metrics 以位置参数传入,或来源不明:NPUEstimatorSpec 需要 eval_metric_ops=函数(*张量)",
            risk="high",
        )
    else:
        site.request_review(
            "another TPUEstimatorSpec of this function cannot be converted automatically: turn all of them into "
            "NPUEstimatorSpec together",
            zh="同一函数中有 TPUEstimatorSpec 无法自动转换:请一并替换为 NPUEstimatorSpec",
            risk="high",
        )


def render_call(site: Site, value: ast.expr) -> str:
    """Return the code that calls the function of a pair with its tensors; "None" if there is no pair."""
    tuples = find_possible_pairs(site, value)
    if not tuples:
        return "None"
    stars = "**" if isinstance(tuples[0].elts[1], ast.Dict) else "*"
    if isinstance(value, ast.Tuple):
        function, tensors = (site.text_of(part) for part in value.elts)
        return f"{function}({stars}{tensors})"
    name = site.text_of(value)
    text = f"{name}[0]({stars}{name}[1])"
    bindings = site.file.names.lookup(name, site.file.names.scope_of(value)) or []
    return text if len(bindings) == len(tuples) else f"{text} if {name} else None"  # some of the values are None


def render_scaffold(site: Site, value: ast.expr) -> str:
    if is_none(value):
        return "None"
    text = site.text_of(value)
    return f"{text}() if {text} else None" if isinstance(value, ast.Name | ast.Attribute) else f"({text})()"


@rule.call(f"{TPU}.CrossShardOptimizer")
def remove_cross_shard(site: Site) -> None:
    optimizer = site.argument("opt", 0)
    if optimizer is None or not site.is_editable:
        site.request_review(
            "CrossShardOptimizer is for TPUs: use the optimizer itself",
            zh="CrossShardOptimizer 仅用于 TPU:请使用原优化器",
        )
        return
    unwrap_optimizer(site, optimizer)
    others = [*site.node.args[1:], *(keyword for keyword in site.node.keywords if keyword.value is not optimizer)]
    dropped = ", ".join(map(site.text_of, others))
    site.report_change(
        "CrossShardOptimizer is for TPUs: the optimizer itself stays" + (f"; dropped: {dropped}" if dropped else ""),
        zh="CrossShardOptimizer 仅用于 TPU:保留原优化器" + (f";删除参数:{dropped}" if dropped else ""),
    )
