"""Give Keras a session that runs on the accelerator.

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

Keras makes a session of its own when it is given none, and that session does not use the device. The session must be
set before the first layer or optimizer is made: before the statement at module level that makes one, else before the
first statement of main that leads to one. It is closed where that block ends, in main, or by `atexit`. A file that only
defines models is not a script: `--entry FILE` names the script that is started. With `--style wrapper` the vendor's
set_keras_session_npu_config does the same.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.rules.tf1 import _entry, _exits, _keras

rule = Rule(__name__, spec="K1 K2 K3", kind="mandatory", after=("session_config",))


@rule.file(words=("keras",))
def from_keras(site: Site) -> None:
    set_up(site)


@rule.file(words=("__main__", *(f".{method}(" for method in _keras.RUNNING)))
def from_entry(site: Site) -> None:
    """Handle a script that does not mention Keras: it may start or run models of other files."""
    if "keras" not in site.source.text:
        set_up(site)


def set_up(site: Site) -> None:
    if ("keras",) in site.work.seen or has_session(site):
        return
    site.work.seen[("keras",)] = None
    entry, path = site.options.entry or site.work.project.entry, site.work.path
    runs = _keras.find_runs(site)
    if entry and path != entry:
        return
    if not runs and not (entry and site.work.project.keras_files):
        report_possible_model(site)
        return
    location = first_place(site)
    if location is None:
        site.manual(
            "Keras models run here, but this file is not the script that is started: name that script with --entry "
            "FILE, so that the session is set up before any layer is made",
            zh="此处运行 Keras 模型,但本文件不是启动脚本:请用 --entry FILE 指明启动脚本,以便在建立任何层之前设置会话",
            node=runs[0] if runs else None,
            risk="high",
        )
        return
    insert(site, location)


def report_possible_model(site: Site) -> None:
    """Report an object of unknown origin that is compiled and run like a Keras model."""
    for call in site.work.index.methods.get("compile", []):
        keywords = {keyword.arg for keyword in call.keywords} & {"loss", "optimizer"}
        used = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        runs = [site_call for name in _keras.RUNNING for site_call in site.work.index.methods.get(name, [])]
        same = [item for item in runs if isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) == used]
        if keywords and same and not site.values.is_other(call.func):
            site.manual(
                f"{used} is compiled and run like a Keras model, but it is not seen where it is made: if it is one, "
                "set a session that carries NpuOptimizer before its first layer is made",
                zh=f"{used} 的用法与 Keras 模型相同,但看不到其创建之处:"
                "若是,请在建立第一层之前设置带 NpuOptimizer 的会话",
                risk="high",
                node=same[0],
            )
            return


def has_session(site: Site) -> bool:
    """Return True if the project sets Keras's session itself, or runs eagerly and needs none."""
    mentions = site.work.project.mentions
    is_set = any(name in site.work.index.calls or name in mentions for name in (*_keras.SET_SESSION, *_keras.EAGER))
    return is_set or _keras.runs_eagerly(site)


def first_place(site: Site) -> ast.stmt | None:
    """Return the first statement at module level that makes a layer or model, else the first that leads to one."""
    guard, main = _entry.main_guard(site), _entry.main_function(site)
    top = [line for line in site.source.tree.body if not isinstance(line, _entry.FunctionNode | ast.ClassDef)]
    inside = [inner for item in top for inner in (item.body if item is guard else [item])]
    classes = _keras.model_classes(site)
    for statement in inside:
        if any(builds_or_runs(site, call) or called_name(call) in classes for call in calls_of(statement)):
            return statement
    block = main.body if main is not None else inside
    reaching = _entry.first_reaching(site, block, lambda node: builds_or_runs(site, node))
    if reaching is not None:
        return reaching
    if main is not None:
        return _entry.first_statement(main)
    return guard.body[0] if guard is not None else None


def builds_or_runs(site: Site, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = site.qualified(node.func)
    built = _keras.builds(name) or site.work.project.returns.get(name or "") == "keras_model"
    return built or name in _keras.GET_SESSION or is_run(site, node)


def is_run(site: Site, call: ast.Call) -> bool:
    """Return True for `model.fit(…)` and the like on a Keras model."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method in _keras.RUNNING and _keras.is_model(site, call.func.value)  # type: ignore[attr-defined]


def calls_of(statement: ast.stmt) -> list[ast.Call]:
    return [node for node in _keras.walk_executed(statement) if isinstance(node, ast.Call)]


def called_name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def insert(site: Site, statement: ast.stmt) -> None:
    name = site.free_name("npu_keras_sess")
    if site.options.style == "wrapper":
        lines = [f"{name} = {site.need('set_keras_session_npu_config')}()"]
        if _keras.is_standalone(site):  # the helper knows only TensorFlow's own
            lines.append(f"{set_session(site)}({name})")
        closing = f"{site.need('close_session')}({name})"
    else:
        lines, closing = session_lines(site, statement, name), f"{name}.close()"
    site.edit.insert_before(statement, lines)
    close(site, statement, closing)
    site.changed(
        "Keras gets a session that carries NpuOptimizer, before its first layer",
        zh="在建立第一层之前为 Keras 设置带 NpuOptimizer 的会话",
        node=statement,
    )


def session_lines(site: Site, statement: ast.stmt, name: str) -> list[str]:
    if not proto.tensorflow_prefix(site):
        proto.module_name(site, "tensorflow", "tf")
    config = proto.local_name(site, statement, "config")
    return [
        f"{config} = {proto.tensorflow_name(site, 'ConfigProto')}()",
        *proto.fill_statements(site, config, statement),
        f"{name} = {proto.tensorflow_name(site, 'Session')}(config={config})",
        f"{set_session(site)}({name})",
    ]


def set_session(site: Site) -> str:
    root = "keras" if _keras.is_standalone(site) else "tensorflow.keras"
    alias = site.work.names.local(f"{root}.backend")
    if alias is not None:
        return f"{alias}.set_session"
    if root == "keras":
        return site.work.need("keras.backend", "set_session")
    return f"{proto.tensorflow_prefix(site)}keras.backend.set_session"


def close(site: Site, statement: ast.stmt, closing: str) -> None:
    """Close the session where its block ends.

    Where the module's end is not reached: at the end of main, or by `atexit` if there is no main.
    """
    main = _entry.main_function(site)
    if site.source.function(statement) is None and _exits.leaves_early(site, site.source.tree.body):
        if main is None:
            register = f"{proto.module_name(site, 'atexit')}.register(lambda: {closing})"
            site.edit.insert_before(statement, [register])
            return
        _exits.insert_at_exits(site, main.body, [closing])
        return
    block = site.source.block(statement)
    _exits.insert_at_exits(site, block[block.index(statement) :], [closing])
