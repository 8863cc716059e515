"""Give Keras a session that runs on the NPU.

     import tensorflow as tf
    +from npu_bridge.estimator import npu_ops
    +from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
    +config = tf.ConfigProto()
    +custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    +custom_op.name = "NpuOptimizer"
    +custom_op.parameter_map["use_off_line"].b = True
    +config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    +npu_keras_sess = tf.Session(config=config)
    +tf.keras.backend.set_session(npu_keras_sess)
     model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
     model.compile("sgd", "mse")
     model.fit(x, y)
    +npu_keras_sess.close()

Without this Keras creates a session that does not use the device. The session must be set before the first layer or
optimizer is created: at module level, or in main if only main and the functions that it calls create them. It is closed
at the end of that block, at the end of main, or by `atexit`. If the session cannot go into the file that runs models,
`--entry FILE` names the script that is started. With `--style wrapper` Ascend's set_keras_session_npu_config is called
instead.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import plain_name, walk_executed
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules import _entry
from viaduct.migration.rules.tf1 import _config_proto as config_proto
from viaduct.migration.rules.tf1 import _exits, _keras
from viaduct.migration.rules.tf1._tensorflow_names import (
    find_tensorflow_prefix,
    import_module,
    render_tensorflow_name,
    reserve_local_name,
)
from viaduct.migration.source import FunctionNode

rule = Rule(__name__, target_needs="keras_sessions", spec_rows=("K1", "K2", "K3"), after=("session_config",))


# A script without the word "keras" may run models that other files define.
@rule.file(only_if_file_contains=("keras", "__main__", *(f".{method}(" for method in _keras.RUN_METHODS)))
def set_up(site: Site) -> None:
    """Insert a session where the started script first creates or runs a model.

    Report a model if the file shows neither where the script starts nor whether the object is a Keras model.
    """
    if has_session(site):
        return
    entry, path = site.options.entry or site.file.project.entry, site.file.path
    runs = _keras.find_runs(site)
    if entry and path != entry:
        return
    if not runs and not (entry and site.file.project.keras_files):
        report_possible_model(site)
        return
    location = find_location(site)
    if location is None:
        site.request_review(
            "Keras models run, but this file does not show where the script starts: name the script with --entry FILE, "
            "so that the session is set up before any layer is created",
            zh="存在 Keras 模型运行,但本文件看不出启动之处:请用 --entry FILE 指明启动脚本,以便在建立任何层之前设置会话",
            node=runs[0] if runs else None,
            risk="high",
        )
        return
    insert_session(site, location)


def report_possible_model(site: Site) -> None:
    """Report an object of unknown origin that is compiled and run like a Keras model."""
    methods = site.file.index.methods
    for call in methods.get("compile", []):
        keywords = {keyword.arg for keyword in call.keywords} & {"loss", "optimizer"}
        receiver = render_receiver(call)
        runs = [run for name in _keras.RUN_METHODS for run in methods.get(name, []) if render_receiver(run) == receiver]
        if keywords and runs and not site.values.is_from_other_library(call.func):
            site.request_review(
                f"{receiver} is compiled and run like a Keras model, but the code does not show its creation: if it "
                "is one, set a session with NpuOptimizer before its first layer is created",
                zh=f"{receiver} 的用法与 Keras 模型相同,但看不到其创建之处:"
                "若是,请在建立第一层之前设置带 NpuOptimizer 的会话",
                risk="high",
                node=runs[0],
            )
            return


def render_receiver(call: ast.Call) -> str:
    """Return the code of x in `x.method(…)`."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def has_session(site: Site) -> bool:
    """Return True if the program sets Keras's session itself, or runs eagerly and needs none."""
    return _entry.is_called_in_program(site, (*_keras.SET_SESSION, *_keras.EAGER_SWITCHES)) or _keras.runs_eagerly(site)


def find_location(site: Site) -> ast.stmt | None:
    """Return the statement before which the session is set; None if the file seems not to be the started script.

    It is the first one at module level that creates a layer or model, or runs one; else the first one of main that does
    so or calls a function that does; else the first one of main or of the main guard.
    """
    guard, main = _entry.find_main_guard(site), _entry.find_main_function(site)
    body = [statement for statement in site.source.tree.body if not isinstance(statement, FunctionNode | ast.ClassDef)]
    module_level = [inner for statement in body for inner in (statement.body if statement is guard else [statement])]
    classes = _keras.find_model_classes(site)
    for statement in module_level:
        calls = [node for node in walk_executed(statement) if isinstance(node, ast.Call)]
        if any(builds_or_runs(site, call) or plain_name(call.func) in classes for call in calls):
            return statement
    block = main.body if main is not None else module_level
    reaching = _entry.first_statement_reaching(site, block, lambda node: builds_or_runs(site, node))
    return reaching or _entry.first_statement_of_main(site)


def builds_or_runs(site: Site, node: ast.AST) -> bool:
    """Return True for a call that creates a layer, model or optimizer, runs a model, or gets the session."""
    if not isinstance(node, ast.Call):
        return False
    name = site.qualified_name(node.func)
    is_builder = _keras.is_builder(name) or site.file.project.result_kinds.get(name or "") == "keras_model"
    return is_builder or name in _keras.GET_SESSION or _keras.is_run(site, node)


def insert_session(site: Site, statement: ast.stmt) -> None:
    """Insert a session with NpuOptimizer for Keras before a statement, and close the session."""
    name = site.reserve_name("npu_keras_sess")
    if site.options.style == "wrapper":
        lines = [f"{name} = {site.import_npu_name('set_keras_session_npu_config')}()"]
        if _keras.is_standalone(site):  # the helper sets the session of tf.keras only
            lines.append(f"{render_set_session(site)}({name})")
        closing = f"{site.import_npu_name('close_session')}({name})"
    else:
        lines, closing = render_session(site, statement, name), f"{name}.close()"
    site.edit.insert_before(statement, lines)
    insert_close(site, statement, closing)
    site.report_change(
        "Keras gets a session with NpuOptimizer, before its first layer",
        zh="在建立第一层之前为 Keras 设置带 NpuOptimizer 的会话",
        node=statement,
    )


def render_session(site: Site, statement: ast.stmt, name: str) -> list[str]:
    """Return the statements that create a session with NpuOptimizer and set it in Keras."""
    if not find_tensorflow_prefix(site):
        import_module(site, "tensorflow", "tf")
    config = reserve_local_name(site, statement, "config")
    return [
        f"{config} = {render_tensorflow_name(site, 'ConfigProto')}()",
        *config_proto.render_npu_optimizer(site, config, statement),
        f"{name} = {render_tensorflow_name(site, 'Session')}(config={config})",
        f"{render_set_session(site)}({name})",
    ]


def render_set_session(site: Site) -> str:
    """Return the name of Keras's set_session in this file: of tf.keras, or of the standalone package."""
    root = "keras" if _keras.is_standalone(site) else "tensorflow.keras"
    alias = site.file.names.local_name(f"{root}.backend")
    if alias is not None:
        return f"{alias}.set_session"
    if root == "keras":
        return site.file.import_name("keras.backend", "set_session")
    return f"{find_tensorflow_prefix(site)}keras.backend.set_session"


def insert_close(site: Site, statement: ast.stmt, closing: str) -> None:
    """Close the session at the end of the block of the statement that opens it.

    If that is the end of the module and is not reached, close it at the end of main, or by `atexit`.
    """
    main = _entry.find_main_function(site)
    if site.source.function_around(statement) is None and _exits.ends_program(site, site.source.tree.body):
        if main is None:
            register = f"{import_module(site, 'atexit')}.register(lambda: {closing})"
            site.edit.insert_before(statement, [register])
            return
        _exits.insert_at_exits(site, main.body, [closing])
        return
    block = site.source.block_around(statement)
    _exits.insert_at_exits(site, block[block.index(statement) :], [closing])
