"""Start all ranks of a session's training from the same values.

     import tensorflow as tf
    +from npu_bridge.hccl import hccl_ops
     def train(loss):
         step = tf.train.AdamOptimizer(0.001).minimize(loss)
         sess = tf.Session()
         sess.run(tf.global_variables_initializer())
    +    bcast_op = tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])
    +    sess.run(bcast_op)
         sess.run(step)

Only with `--distributed`, in code that trains. A monitored session, and a canned Estimator's training, get the hook
that does the same. NPUEstimator broadcasts by itself.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _broadcast as broadcast
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.rules.tf1 import _optimizers as optimizers
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(__name__, spec="V4 E14", kind="mandatory", order=73, on=lambda options: options.distributed)
EXAMPLE_OPTIONS = {"distributed": True}

INITIALIZERS = ("tensorflow.global_variables_initializer", "tensorflow.initialize_all_variables")
HOOKS = {"tensorflow.train.MonitoredTrainingSession": 4, "tensorflow.train.SingularMonitoredSession": 0}
TRAINING = ("minimize", "apply_gradients")
NOT_TRAINING = ("eval", "predict", "infer", "test", "export", "freeze", "convert", "serve")
MANAGED = (
    *("tensorflow.contrib.slim.learning.train", "tf_slim.learning.train", "tensorflow.contrib.training.train"),
    "tensorflow.train.Supervisor",
)
BROADCASTS = (broadcast.HCCL, broadcast.HOOK, "npu_bridge.npu_init.npu_hooks_append")


# ---- plain sessions


@rule.method("run")
def initialised(site: Site) -> None:
    """`sess.run(init)` and `init.run()`."""
    receiver = site.node.func.value
    first = site.node.args[0] if site.node.args else None
    if first is not None and is_initializer(site, first):
        follow(site, f"{site.text(receiver)}.run({{}})")
    elif is_initializer(site, receiver):
        rest = ", ".join(site.text(argument) for argument in [*site.node.args, *site.node.keywords])
        follow(site, f"{{}}.run({rest})")


def is_initializer(site: Site, node: ast.expr) -> bool:
    """Directly, by name, or among several in a list or a group."""
    made = site.values.origin(node)
    if isinstance(made, ast.List | ast.Tuple):
        return any(is_initializer(site, one) for one in made.elts)
    if not isinstance(made, ast.Call):
        return False
    name = site.qualified(made.func)
    return name in INITIALIZERS or (name == "tensorflow.group" and any(is_initializer(site, one) for one in made.args))


def follow(site: Site, run: str) -> None:
    if not trains(site) or is_present(site):
        return
    statement = site.source.parents[site.node]
    if not isinstance(statement, ast.Expr) or own_graph(site):
        leave(site)
        return
    name = proto.local_name(site, statement, "bcast_op")
    made = broadcast.operation(site, broadcast.trainable_variables(site))
    site.edit.after(statement, [f"{name} = {made}", run.format(name)])
    say(site)


def say(site: Site) -> None:
    site.changed("every rank starts from the values of rank 0", zh="各 rank 以 rank 0 的变量初值开始训练")


def leave(site: Site) -> None:
    site.manual(
        "all ranks must start from the same values: assign hccl_ops.broadcast([var], 0)[0] to each trainable variable "
        "after the initialiser, in the session's graph, or use NPUBroadcastGlobalVariablesHook",
        zh="各 rank 需以相同初值开始训练:在初始化之后、会话所用的图中,对每个可训练变量赋值 "
        "hccl_ops.broadcast([var], 0)[0],或使用 NPUBroadcastGlobalVariablesHook",
        risk="high",
    )


def trains(site: Site) -> bool:
    """Something in this file updates variables, and the function does not say that it does another thing."""
    function = site.source.function(site.node)
    if function is not None and any(word in function.name.lower() for word in NOT_TRAINING):
        return False
    calls = site.work.index.calls
    return any(name in site.work.index.methods for name in TRAINING) or any(
        name in calls for name in optimizers.CONSUMERS
    )


def is_present(site: Site) -> bool:
    """This file broadcasts already."""
    return any(name in site.work.index.calls for name in BROADCASTS)


def own_graph(site: Site) -> bool:
    """A session with a graph of its own, outside of `with`: a new operation would land in another graph."""
    made = site.values.origin(site.node.func.value)
    graph = [*made.args[1:2], *(w for w in made.keywords if w.arg == "graph")] if isinstance(made, ast.Call) else []
    within = any(isinstance(one, ast.With) for one in site.source.ancestors(site.node))
    return bool(graph) and not within


# ---- hooks


@rule.call(*HOOKS)
def monitored(site: Site) -> None:
    if trains(site) and not is_present(site):
        add_hook(site, HOOKS[site.name])


@rule.method("train")
def canned(site: Site) -> None:
    """Estimators that keep TensorFlow's class do not broadcast by themselves."""
    made = site.values.origin(site.node.func.value)
    if isinstance(made, ast.Call) and site.qualified(made.func) in optimizers.CANNED and not is_present(site):
        add_hook(site, 1)


def add_hook(site: Site, position: int) -> None:
    hooks = site.argument("hooks", position)
    if site.unpacked or not site.editable:
        leave(site)
        return
    made = f"{site.need('NPUBroadcastGlobalVariablesHook')}(0, {ranks.expression(site, site.node, 'rank')})"
    if hooks is None or (isinstance(hooks, ast.Constant) and hooks.value is None):
        site.set_argument("hooks", f"[{made}]", position)
    elif isinstance(hooks, ast.List):
        site.edit.insert(site.source.span(hooks)[0] + 1, f"{made}, " if hooks.elts else made)
    else:
        site.edit.node(hooks, f"[{made}] + list({site.text(hooks)} or [])")
    say(site)


@rule.call(*MANAGED)
def managed(site: Site) -> None:
    supervised = site.name.endswith("Supervisor") and not trains(site)
    if not supervised and not is_present(site):
        leave(site)
