"""Average evaluation metrics over the ranks.

With `--metrics-allreduce`:

     import tensorflow as tf
    +import os
    +from npu_bridge.hccl import hccl_ops
     def model_fn(features, labels, mode):
         top1 = tf.metrics.accuracy(labels, predictions)
    -    metrics = {"top1": top1}
    +    metrics = {"top1": (hccl_ops.allreduce(top1[0], "sum") / int(os.getenv("RANK_SIZE", "1")), top1[1])}
         return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

Each rank evaluates its share and keeps its update operations; the values are averaged. If the values of the dictionary
are not all variables, or if a call returns it, a comprehension averages them. Other metrics need manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import mark_once
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(
    __name__,
    spec_rows=("V6",),
    category="advice",
    when=lambda options: options.metrics_allreduce,
    after=("tpu_spec", "seed_tuning"),
)

SPEC_CLASSES = ("tensorflow.estimator.EstimatorSpec", full_name("NPUEstimatorSpec"))


@rule.call(*SPEC_CLASSES)
def average_metrics(site: Site) -> None:
    metrics = site.argument("eval_metric_ops", 4)
    if metrics is None or is_none(metrics):
        return
    origin = site.values.assigned_value(metrics)
    if "allreduce" in ast.unparse(origin) or not mark_once(site, "averaged", origin):
        return
    if isinstance(origin, ast.Dict) and all(isinstance(value, ast.Name) for value in origin.values):
        for value in origin.values:
            name = site.text_of(value)
            site.edit.replace_node(value, f"({render_mean(site, f'{name}[0]')}, {name}[1])")
    elif isinstance(origin, ast.Dict | ast.Call) and not site.edit.has_comment(*site.source.span(origin)):
        items = f"for key, (value, update) in {site.text_of(origin)}.items()"
        site.edit.replace_node(origin, f"{{key: ({render_mean(site, 'value')}, update) {items}}}")
    else:
        site.request_review(
            f"average {site.text_of(metrics)} over the ranks: "
            "hccl_ops.allreduce(value, 'sum') / rank_size for each value",
            zh=f"请在各 rank 间平均 {site.text_of(metrics)}:对每个值使用 hccl_ops.allreduce(value, 'sum') / rank_size",
        )
        return
    site.report_change("metrics are averaged over the ranks", zh="评估指标在各 rank 间取平均", node=origin)


def render_mean(site: Site, value: str) -> str:
    return f'{site.import_npu_name("hccl_ops")}.allreduce({value}, "sum") / {ranks.render_environment(site, "size")}'
