"""Start all ranks of a Keras training from the same weights.

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
     model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    -model.fit(x, y, callbacks=[tf.keras.callbacks.CSVLogger("log.csv")])
    +model.fit(x, y, callbacks=[NPUBroadcastGlobalVariablesCallback(0), tf.keras.callbacks.CSVLogger("log.csv")])

Only with `--distributed`. The callback broadcasts the variables of rank 0 at the first batch. A tuple of callbacks
becomes a list: the vendor's own helper would silently drop it. train_on_batch, unpacked arguments, and a `fit` of an
object that may be a Keras model need manual review.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _keras

rule = Rule(__name__, spec="K6", kind="mandatory", on=lambda options: options.distributed)
EXAMPLE_OPTIONS = {"distributed": True}

POSITIONS = {"fit": 5, "fit_generator": 4}
CALLBACK = "NPUBroadcastGlobalVariablesCallback"
PRESENT = (CALLBACK, "BroadcastGlobalVariablesCallback", "npu_callbacks_append")


@rule.method(*POSITIONS)
def add_callback(site: Site) -> None:
    if not _keras.is_model(site, site.node.func.value):
        report_possible_model(site)
        return
    value = site.argument("callbacks", POSITIONS[site.name])
    if value is None and site.has_unpacked:
        report_by_hand(site)
        return
    if not site.editable or (value is not None and is_present(site, value)):
        return
    made = f"{site.need(CALLBACK)}(0)"
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        site.set_argument("callbacks", f"[{made}]", POSITIONS[site.name])
    else:
        prepend_callback(site, value, made)
    site.changed("rank 0 broadcasts its variables at the first batch", zh="首个 batch 时由 rank 0 广播变量初值")


@rule.method("train_on_batch")
def report_train_on_batch(site: Site) -> None:
    if _keras.is_model(site, site.node.func.value):
        report_by_hand(site)


def prepend_callback(site: Site, value: ast.expr, made: str) -> None:
    start, end = site.source.span(value)
    if isinstance(value, ast.List):
        site.edit.insert(start + 1, f"{made}, " if value.elts else made)
    elif isinstance(value, ast.Tuple) and site.source.text[start] == "(":
        site.edit.replace(start, start + 1, f"[{made}, " if value.elts else f"[{made}")
        site.edit.replace(end - 1, end, "]")
    elif isinstance(site.values.origin(value), ast.List):
        site.edit.insert(start, f"[{made}] + ")
    else:
        site.edit.node(value, f"[{made}] + list({site.text(value)} or [])")


def is_present(site: Site, value: ast.expr) -> bool:
    """Return True if the callbacks hold a broadcast already: in the expression, its variable, or added to that."""
    looked = [value, site.values.origin(value)]
    if isinstance(value, ast.Name):
        around = site.source.function(site.node) or site.source.tree
        looked += [node for node in ast.walk(around) if changes(node, value.id)]
    calls = (node for item in looked for node in ast.walk(item) if isinstance(node, ast.Call))
    return any((site.qualified(call.func) or "").rpartition(".")[2] in PRESENT for call in calls)


def changes(node: ast.AST, name: str) -> bool:
    """Return True for `name.append(…)` or another method, `name += […]` and `name = …`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return isinstance(node.func.value, ast.Name) and node.func.value.id == name
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name


def report_possible_model(site: Site) -> None:
    words, receiver = {keyword.arg for keyword in site.node.keywords}, site.node.func.value
    unknown = site.values.kind(receiver) is None and site.qualified(receiver) is None
    if unknown and words & {"epochs", "callbacks", "steps_per_epoch"}:
        report_by_hand(site)


def report_by_hand(site: Site) -> None:
    site.manual(
        f"if a Keras model is trained here, broadcast its initial weights: {CALLBACK}(0) among the callbacks",
        zh=f"若此处训练 Keras 模型,请广播初始权重:在 callbacks 中加入 {CALLBACK}(0)",
    )
