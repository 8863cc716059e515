"""Start all ranks from the values of one, as Horovod's broadcast did.

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from hccl.manage.api import get_rank_id
    +from npu_bridge.estimator.npu.npu_hook import NPUBroadcastGlobalVariablesHook
     def train():
    -    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    +    hooks = [NPUBroadcastGlobalVariablesHook(0, get_rank_id())]
         return tf.train.MonitoredTrainingSession(hooks=hooks)

NPUEstimator broadcasts of its own accord: there the hook is removed, or becomes an empty one where something else holds
it. The operation broadcast_global_variables becomes one assignment for each trainable variable, grouped; a Keras
callback becomes the accelerator's.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _broadcast as broadcast
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(__name__, spec="2.8", kind="mandatory")
EXAMPLE_OPTIONS = {"distributed": True}


@rule.call(*horovod.names("BroadcastGlobalVariablesHook"))
def hook(site: Site) -> None:
    if horovod.is_left(site):
        return
    if broadcast.estimator_trains(site):
        remove_hook(site)
        return
    text = f"{site.need('NPUBroadcastGlobalVariablesHook')}({root(site)}, {ranks.expression(site, site.node, 'rank')})"
    replace_broadcast(site, text, "the accelerator's hook broadcasts the initial values", "改用 NPU 的变量广播 hook")


def root(site: Site) -> str:
    value = site.argument("root_rank", 0)
    return site.text(value) if value is not None else "0"


def replace_broadcast(site: Site, text: str, message: str, zh: str) -> None:
    if horovod.replace_call(site, text):
        site.changed(message, zh=zh)
    else:
        horovod.by_hand(site, f"write {text}", f"请改为 {text}")


def remove_hook(site: Site) -> None:
    parent = site.source.parents[site.node]
    statement = site.source.statement(site.node)
    if isinstance(parent, ast.List) and not site.edit.has_comment(*site.source.span(site.node)):
        opening = next(site.source.tokens_from(site.source.span(parent)[0]))
        site.edit.remove_slot(site.source.slots(opening)[0], parent.elts.index(site.node))
    elif isinstance(statement, ast.Expr) and statement.value is parent and is_append(parent):
        site.edit.remove_statement(statement)
    elif not horovod.replace_call(site, f"{site.need('NpuEmptyHook')}()"):
        horovod.by_hand(site, "remove it: NPUEstimator broadcasts itself", "请删除:NPUEstimator 会自行广播变量")
        return
    site.changed(
        "the hook is gone: NPUEstimator broadcasts the initial values itself",
        zh="删除该 hook:NPUEstimator 会自行广播变量初值",
    )


def is_append(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"


@rule.call(*horovod.names("callbacks.BroadcastGlobalVariablesCallback"))
def callback(site: Site) -> None:
    if horovod.is_left(site):
        return
    text = f"{site.need('NPUBroadcastGlobalVariablesCallback')}(root_rank={root(site)})"
    replace_broadcast(
        site, text, "the accelerator's callback broadcasts the initial weights", "改用 NPU 的权重广播回调"
    )


@rule.call(*horovod.names("broadcast_global_variables"))
def global_variables(site: Site) -> None:
    if horovod.is_left(site):
        return
    if site.name.startswith(horovod.KERAS):
        horovod.by_hand(site, "use NPUBroadcastGlobalVariablesCallback", "请使用 NPUBroadcastGlobalVariablesCallback")
        return
    text = broadcast.operation(site, broadcast.trainable_variables(site), root(site))
    replace_broadcast(
        site, text, "one operation broadcasts every trainable variable", f"通过 {NPU.backend} 广播所有可训练变量"
    )


@rule.call(*horovod.names("broadcast_variables"))
def some_variables(site: Site) -> None:
    if horovod.is_left(site):
        return
    variables, rank = site.argument("variables", 0), site.argument("root_rank", 1)
    if variables is None or rank is None:
        horovod.by_hand(
            site, "assign hccl_ops.broadcast([var], 0)[0] to each", "请对每个变量赋值 hccl_ops.broadcast([var], 0)[0]"
        )
        return
    text = broadcast.operation(site, site.text(variables), site.text(rank))
    replace_broadcast(site, text, "one operation broadcasts these variables", f"通过 {NPU.backend} 广播这些变量")
