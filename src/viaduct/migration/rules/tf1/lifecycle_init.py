"""Start collective communication before the script asks for a rank, and end it.

With `--distributed`:

     import tensorflow as tf
     from hccl.manage.api import get_rank_size
    +from npu_bridge.estimator import npu_ops
    +from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
    +
    +
    +def init_npu():
    +    \"""A session, and the operation that starts collective communication when it is run.\"""
    +    npu_init = npu_ops.initialize_system()
    +    config = tf.ConfigProto()
    +    config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    +    custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    +    custom_op.name = "NpuOptimizer"
    +    custom_op.parameter_map["use_off_line"].b = True
    +    init_sess = tf.Session(config=config)
    +    return init_sess, npu_init
     def main(_):
    +    init_sess, npu_init = init_npu()
    +    npu_shutdown = npu_ops.shutdown_system()
    +    init_sess.run(npu_init)
         run(get_rank_size())
    +    init_sess.run(npu_shutdown)
    +    init_sess.close()
     tf.app.run()

The rule edits the script that is started, if it or a file that it imports asks hccl, the NPU's library of collectives,
for ranks, and no file of the same program starts communication. The operations that start and end it are created in the
graph of the session that runs them. `--style wrapper` writes init_resource and shutdown_resource of npu_init;
`--resources plugin` calls npu_plugin, which needs no session.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import COLLECTIVE_PREFIXES, NPU_BRIDGE
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules import _entry
from viaduct.migration.rules.tf1 import _communication as communication
from viaduct.migration.rules.tf1 import _exits

# After distribute_broadcast, whose code asks for ranks, and the other rules that convert Estimators and sessions.
rule = Rule(
    __name__,
    target_needs="communication",
    spec_rows=("C1", "C3", "C4", "C5"),
    when=communication.needs_communication,
    after=("tpu_spec", "distribute_broadcast", "session_close"),
)


@rule.file(only_if_file_contains=("__main__", "app.run", NPU.backend, "get_rank_", "get_local_rank_"))
def start_communication(site: Site) -> None:
    if not communication.asks_for_ranks(site) or _entry.is_called_in_program(site, communication.START_CALLS):
        return
    location = find_location(site)
    if location is None:
        return
    start_lines, end_lines = render_start_and_end(site, location)
    site.edit.insert_before(location, start_lines)
    insert_shutdown(site, location, end_lines)
    site.report_change(
        "collective communication is started before the script asks for ranks",
        zh=f"在调用 {NPU.backend} 接口之前初始化集合通信",
        node=location,
    )


def find_location(site: Site) -> ast.stmt | None:
    """Return the first statement of main, else of the main guard, else of the module, that may ask hccl for ranks.

    Without such a statement return the first one of main or of the guard. Return None if there is neither, and for a
    module of another script.
    """
    main, guard = _entry.find_main_function(site), _entry.find_main_guard(site)
    if main is None and guard is None and site.file.project.importers.get(site.file.path):
        return None  # a module of another script
    entry = main or guard
    block = entry.body if entry is not None else _entry.select_executed(site.source.tree.body)
    reaching = _entry.first_statement_reaching(site, block, lambda node: may_ask_for_ranks(site, node))
    return reaching or _entry.first_statement_of_main(site)


def may_ask_for_ranks(site: Site, node: ast.AST) -> bool:
    """Return True for a name of hccl, and for a name of a module that asks for ranks."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    name = site.qualified_name(node) or ""
    return name.startswith(COLLECTIVE_PREFIXES) or bool(set(name.split(".")) & find_asking_modules(site))


def find_asking_modules(site: Site) -> set[str]:
    """Return the last names of imported modules that ask for ranks, or import others that do."""
    project, files = site.file.project, communication.find_asking_files(site)
    paths = (path for path in project.imports.get(site.file.path, ()) if project.all_imports(path) & files)
    return {project.module_of(path)[0].rpartition(".")[2] for path in paths}


def render_start_and_end(site: Site, statement: ast.stmt) -> tuple[list[str], list[str]]:
    """Return the statements that start communication, and the statements that end it."""
    if site.options.resources == "plugin":
        plugin = site.import_npu_name("npu_plugin")
        return [f"{plugin}.npu_resource_init()"], [f"{plugin}.npu_resource_shutdown()"]
    if site.options.style == "wrapper":
        shutdown, init, close = (
            site.import_npu_name(name) for name in ("shutdown_resource", "init_resource", "close_session")
        )
        return [f"npu_sess, npu_shutdown = {init}()"], [f"{shutdown}(npu_sess, npu_shutdown)", f"{close}(npu_sess)"]
    helper, ops = communication.ensure_init_function(site, statement), site.import_npu_name("npu_ops")
    start, run = f"init_sess, npu_init = {helper}()", "init_sess.run(npu_init)"
    if site.file.project.estimator_cycle_files & site.file.project.all_imports(site.file.path):
        # lifecycle_cycles shuts communication down after the last training
        return [start, run], ["init_sess.close()"]
    shutdown = f"npu_shutdown = {ops}.shutdown_system()"
    return [start, shutdown, run], ["init_sess.run(npu_shutdown)", "init_sess.close()"]


def insert_shutdown(site: Site, statement: ast.stmt, closing: list[str]) -> None:
    """Insert the statements that end communication at the exits and the end of the block that starts it."""
    if site.source.function_around(statement) is None and _exits.ends_program(site, site.source.tree.body):
        site.advise(
            f"the end of this module is not reached; {NPU_BRIDGE} cleans up when the interpreter ends",
            zh=f"本模块的末尾不会执行到;{NPU_BRIDGE} 会在解释器退出时清理资源",
        )
        return
    block = site.source.block_around(statement)
    _exits.insert_at_exits(site, block[block.index(statement) :], closing)
