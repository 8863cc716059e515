"""Replace Horovod's broadcast of the initial values.

With `--distributed`:

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from hccl.manage.api import get_rank_id
    +from npu_bridge.estimator.npu.npu_hook import NPUBroadcastGlobalVariablesHook
     def train():
    -    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    +    hooks = [NPUBroadcastGlobalVariablesHook(0, get_rank_id())]
         return tf.train.MonitoredTrainingSession(hooks=hooks)

NPUEstimator broadcasts by itself. If an NPUEstimator trains, the hook is removed from its list; a hook in no list
becomes one that does nothing. broadcast_global_variables becomes a group of assignments, one for each trainable
variable. A Keras callback becomes the NPU's.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.lookups import called_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _broadcast as broadcast
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(__name__, target_needs="broadcast", spec_rows=("2.8",))


@horovod.register_call(rule, "BroadcastGlobalVariablesHook")
def replace_hook(site: Site) -> None:
    """Replace the hook by the NPU's, or remove it if an NPUEstimator trains."""
    if broadcast.is_trained_by_estimator(site):
        remove_hook(site)
        return
    rank = ranks.render_rank_quantity(site, site.node, "rank")
    text = f"{site.import_npu_name('NPUBroadcastGlobalVariablesHook')}({render_root_rank(site)}, {rank})"
    horovod.replace_or_report(
        site, text, "the accelerator's hook broadcasts the initial values", "改用 NPU 的变量广播 hook"
    )


def render_root_rank(site: Site) -> str:
    """Return the code of the rank that broadcasts, by default 0."""
    value = site.argument("root_rank", 0)
    return site.text_of(value) if value is not None else "0"


def remove_hook(site: Site) -> None:
    """Remove the hook from its list, or the statement that appends it; else replace it by an empty hook."""
    parent = site.source.parents[site.node]
    statement = site.source.statement_around(site.node)
    if isinstance(parent, ast.List) and not site.edit.has_comment(*site.source.span(site.node)):
        opening = next(site.source.tokens_from(site.source.span(parent)[0]))
        site.edit.remove_items(site.source.bracket_items(opening)[0], {parent.elts.index(site.node)})
    elif isinstance(statement, ast.Expr) and statement.value is parent and called_name(parent) == "append":
        site.edit.remove_statement(statement)
    elif not horovod.replace_call(site, f"{site.import_npu_name('NpuEmptyHook')}()"):
        horovod.request_manual_change(
            site, "remove it: NPUEstimator broadcasts itself", "请删除:NPUEstimator 会自行广播变量"
        )
        return
    site.report_change(
        "the hook is removed or empty: NPUEstimator broadcasts the initial values itself",
        zh="该 hook 已删除或置空:NPUEstimator 会自行广播变量初值",
    )


@horovod.register_call(rule, "callbacks.BroadcastGlobalVariablesCallback")
def replace_callback(site: Site) -> None:
    text = f"{site.import_npu_name('NPUBroadcastGlobalVariablesCallback')}(root_rank={render_root_rank(site)})"
    horovod.replace_or_report(
        site, text, "the accelerator's callback broadcasts the initial weights", "改用 NPU 的权重广播回调"
    )


@horovod.register_call(rule, "broadcast_global_variables")
def broadcast_all(site: Site) -> None:
    if site.name.startswith(horovod.KERAS_MODULES):
        horovod.request_manual_change(
            site, "use NPUBroadcastGlobalVariablesCallback", "请使用 NPUBroadcastGlobalVariablesCallback"
        )
        return
    text = broadcast.render_broadcast(site, broadcast.render_trainable_variables(site), render_root_rank(site))
    horovod.replace_or_report(
        site,
        text,
        f"one operation broadcasts every trainable variable through {NPU.backend}",
        f"用一个操作通过 {NPU.backend} 广播所有可训练变量",
    )


@horovod.register_call(rule, "broadcast_variables")
def broadcast_some(site: Site) -> None:
    variables, rank = site.argument("variables", 0), site.argument("root_rank", 1)
    if variables is None or rank is None:
        horovod.request_manual_change(
            site, "assign hccl_ops.broadcast([var], 0)[0] to each", "请对每个变量赋值 hccl_ops.broadcast([var], 0)[0]"
        )
        return
    text = broadcast.render_broadcast(site, site.text_of(variables), site.text_of(rank))
    horovod.replace_or_report(
        site,
        text,
        f"one operation broadcasts these variables through {NPU.backend}",
        f"用一个操作通过 {NPU.backend} 广播这些变量",
    )
