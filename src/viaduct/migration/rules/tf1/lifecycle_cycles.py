"""Start communication again after each train, evaluate and predict that is in a loop or followed by another one.

With `--distributed`:

     import tensorflow as tf
     from hccl.manage.api import get_rank_size
     from npu_bridge.estimator import npu_ops
     from npu_bridge.estimator.npu.npu_estimator import NPUEstimator
     def init_npu():
         npu_init = npu_ops.initialize_system()
         return tf.Session(config=config), npu_init
     def run(epochs):
         classifier = NPUEstimator(model_fn=model_fn, config=run_config)
         for _ in range(epochs):
             classifier.train(input_fn=lambda: data(get_rank_size()))
    +        init_sess, npu_init = init_npu()
    +        npu_shutdown = npu_ops.shutdown_system()
    +        init_sess.run(npu_shutdown)
    +        init_sess.run(npu_init)
    +    init_sess, npu_init = init_npu()
    +    npu_shutdown = npu_ops.shutdown_system()
    +    init_sess.run(npu_shutdown)
    +    init_sess.close()

An Estimator releases the device's resources when train, evaluate or predict ends; then input functions of the next call
cannot ask for ranks. At the end of the function communication is shut down, except with `--style wrapper` or
`--resources plugin`.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import contains_call
from viaduct.migration.project_usage import find_estimator_cycle
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _communication as communication
from viaduct.migration.rules.tf1 import _exits

# After lifecycle_init, which writes the helper that the restarts call.
rule = Rule(
    __name__,
    target_needs="communication",
    spec_rows=("C2", "C4", "C5"),
    when=communication.needs_communication,
    after=("lifecycle_init",),
)


@rule.node(ast.FunctionDef, ast.AsyncFunctionDef, only_if_file_contains=(".train(", ".evaluate("))
def restart_in_cycles(site: Site) -> None:
    calls = [
        call for call in find_estimator_cycle(site.node, site.values) if site.source.function_around(call) is site.node
    ]
    asks_for_ranks = bool(site.file.project.rank_files) or communication.asks_for_ranks(site)
    handles_communication = contains_call(site, site.node, (*communication.START_CALLS, *communication.STOP_CALLS))
    if not calls or not asks_for_ranks or handles_communication:
        return
    for call in calls:
        restart_after_call(site, call)
    if site.options.resources == "session" and site.options.style == "explicit":
        _exits.insert_at_exits(site, site.node.body, [*render_shutdown(site), "init_sess.close()"])


def restart_after_call(site: Site, call: ast.Call) -> None:
    """Insert a restart after an expression or assignment with the call; report a call in another statement."""
    statement = site.source.statement_around(call)
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign):
        site.request_review(
            "communication must be started again after this training or evaluation: npu_ops.shutdown_system, then "
            "npu_ops.initialize_system",
            zh="此次训练或评估之后需重新初始化集合通信:先 npu_ops.shutdown_system,再 npu_ops.initialize_system",
            node=call,
        )
        return
    site.edit.insert_after(statement, render_restart(site))
    site.report_change(
        "communication is started again: the Estimator has released the device's resources",
        zh="Estimator 训练或评估结束后设备资源被释放,重新初始化集合通信",
        node=call,
    )


def render_restart(site: Site) -> list[str]:
    """Return the statements that shut communication down and start it again.

    Those of `--style wrapper` only start it, unless `--resources plugin` is given too.
    """
    if site.options.resources == "plugin":
        plugin = site.import_npu_name("npu_plugin")
        return [f"{plugin}.npu_resource_shutdown()", f"{plugin}.npu_resource_init()"]
    if site.options.style == "wrapper":
        return [f"npu_sess, npu_shutdown = {site.import_npu_name('init_resource')}()"]
    return [*render_shutdown(site), "init_sess.run(npu_init)"]


def render_shutdown(site: Site) -> list[str]:
    """Return the statements that shut communication down in a new session; define the helper that they call."""
    helper = communication.ensure_init_function(site, site.node)
    ops = site.import_npu_name("npu_ops")
    return [
        f"init_sess, npu_init = {helper}()",
        f"npu_shutdown = {ops}.shutdown_system()",
        "init_sess.run(npu_shutdown)",
    ]
