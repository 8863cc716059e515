"""Start all ranks of a Keras training from the same weights.

With `--distributed`:

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
     model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    -model.fit(x, y, callbacks=[tf.keras.callbacks.CSVLogger("log.csv")])
    +model.fit(x, y, callbacks=[NPUBroadcastGlobalVariablesCallback(0), tf.keras.callbacks.CSVLogger("log.csv")])

The callback broadcasts the variables of rank 0 at the first batch. A tuple of callbacks becomes a list. train_on_batch,
unpacked arguments, and a `fit` of an object that may be a Keras model need manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import plain_name
from viaduct.migration.options import is_distributed
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _keras
from viaduct.migration.rules.tf1._broadcast import prepend_item

rule = Rule(__name__, target_needs="broadcast", spec_rows=("K6",), when=is_distributed)

CALLBACKS_POSITIONS = {"fit": 5, "fit_generator": 4}
CALLBACK = "NPUBroadcastGlobalVariablesCallback"
BROADCASTING_CALLBACKS = (CALLBACK, "BroadcastGlobalVariablesCallback", "npu_callbacks_append")


@rule.method(*CALLBACKS_POSITIONS)
def add_callback(site: Site) -> None:
    """Add the callback to a model's fit, unless its callbacks broadcast already."""
    if not _keras.is_model(site, site.node.func.value):
        report_possible_model(site)
        return
    value = site.argument("callbacks", CALLBACKS_POSITIONS[site.name])
    if value is None and site.has_unpacked_arguments:
        report_missing_broadcast(site)
        return
    if not site.is_editable or (value is not None and has_broadcast(site, value)):
        return
    callback = f"{site.import_npu_name(CALLBACK)}(0)"
    if value is None or is_none(value):
        site.set_argument("callbacks", f"[{callback}]", CALLBACKS_POSITIONS[site.name])
    else:
        prepend_item(site, value, callback)
    site.report_change("rank 0 broadcasts its variables at the first batch", zh="首个 batch 时由 rank 0 广播变量初值")


@rule.method("train_on_batch")
def report_train_on_batch(site: Site) -> None:
    if _keras.is_model(site, site.node.func.value):
        report_missing_broadcast(site)


def has_broadcast(site: Site, value: ast.expr) -> bool:
    """Return True if a call in the callbacks, or in changes of their variable, creates a broadcasting callback."""
    nodes = [value, site.values.assigned_value(value)]
    if isinstance(value, ast.Name):
        function = site.source.function_around(site.node) or site.source.tree
        nodes += [node for node in ast.walk(function) if changes_variable(node, value.id)]
    calls = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any((site.qualified_name(call.func) or "").rpartition(".")[2] in BROADCASTING_CALLBACKS for call in calls)


def changes_variable(node: ast.AST, name: str) -> bool:
    """Return True for a method call such as `name.append(…)`, for `name += […]` and `name = …`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return plain_name(node.func.value) == name
    if isinstance(node, ast.Assign):
        return any(plain_name(target) == name for target in node.targets)
    return isinstance(node, ast.AugAssign) and plain_name(node.target) == name


def report_possible_model(site: Site) -> None:
    """Report a `fit` of an unknown object with a keyword of Keras's fit."""
    keywords = {keyword.arg for keyword in site.node.keywords}
    if _keras.has_unknown_origin(site, site.node.func.value) and keywords & {"epochs", "callbacks", "steps_per_epoch"}:
        report_missing_broadcast(site)


def report_missing_broadcast(site: Site) -> None:
    site.request_review(
        f"if a Keras model is trained here, broadcast its initial weights: {CALLBACK}(0) among the callbacks",
        zh=f"若此处训练 Keras 模型,请广播初始权重:在 callbacks 中加入 {CALLBACK}(0)",
    )
