"""Start all ranks of a session's training from the same values.

With `--distributed`:

     import tensorflow as tf
    +from npu_bridge.hccl import hccl_ops
     def train(loss):
         step = tf.train.AdamOptimizer(0.001).minimize(loss)
         sess = tf.Session()
         sess.run(tf.global_variables_initializer())
    +    bcast_op = tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])
    +    sess.run(bcast_op)
         sess.run(step)

The rule edits programs that train; the optimizer, the initialiser and the session may be in different files. If the
session may have another graph than the default one, the broadcast is created under `sess.graph.as_default()`. Monitored
sessions, and the training of canned Estimators (DNN, linear, baseline), get a hook with the same effect. NPUEstimator
broadcasts by itself, and a file that calls any broadcast is taken to broadcast its variables. An initialiser that no
code of the project runs is reported as unresolved. A Supervisor, `slim.learning.train` and an initialiser of a list of
variables need manual review.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from viaduct.migration.import_graph import find_programs
from viaduct.migration.names import Comprehension
from viaduct.migration.options import is_distributed
from viaduct.migration.predicates import is_none
from viaduct.migration.project_usage import BROADCASTS, INITIALIZERS, OPTIMIZER_TRAINING_FUNCTIONS, TRAINING_METHODS
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _broadcast as broadcast
from viaduct.migration.rules.tf1 import _initialisers as initialisers
from viaduct.migration.rules.tf1 import _optimizers as optimizers
from viaduct.migration.rules.tf1 import _ranks as ranks
from viaduct.migration.rules.tf1._insertion import ends_line, starts_line
from viaduct.migration.rules.tf1._tensorflow_names import reserve_local_name
from viaduct.migration.sessions import SESSION_CLASSES

rule = Rule(__name__, target_needs="broadcast", spec_rows=("E14", "V4"), when=is_distributed, after=("session_config",))

HOOKS_POSITIONS = {  # session -> position of its argument `hooks`
    "tensorflow.train.MonitoredTrainingSession": 4,
    "tensorflow.train.SingularMonitoredSession": 0,
    "tensorflow.train.MonitoredSession": 1,
}
# Beginnings of words in names of functions and files that do not train.
EVALUATION_PREFIXES = ("eval", "predict", "infer", "test", "export", "freeze", "convert", "serve", "serving")
WORD_PATTERN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
TRAINING_NAME = re.compile(
    r"(?:^|_)train(?:_?(?:op|ops|step|steps|er))?$|(?:^|_)(?:optimi[sz]er?|minimi[sz]e|apply_gradients)(?:_op)?$"
)
TRAINING_LOOPS = (  # they create and initialise a session themselves
    "tensorflow.contrib.slim.learning.train", "tf_slim.learning.train", "tensorflow.contrib.training.train",
    "tensorflow.train.Supervisor",
)  # fmt: skip
SIMPLE_STATEMENTS = ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign


# ---- plain sessions


@rule.method("run")
def broadcast_after_initialiser(site: Site) -> None:
    """Add a broadcast after `sess.run(init)` and `init.run()`."""
    receiver = site.node.func.value
    if not may_be_session_or_operation(site, receiver) or has_broadcast(site) or not is_training(site):
        return
    fetches = site.argument("fetches", 0)
    is_initialiser = initialisers.is_initialiser(site, fetches)  # None: only its name suggests it
    if is_initialiser:
        insert_broadcast(site, session=receiver, render_run=lambda name: f"{site.text_of(receiver)}.run({name})")
        return
    if initialisers.is_initialiser(site, receiver):
        session = site.argument("session", 1)
        arguments = ", ".join(site.text_of(argument) for argument in [*site.node.args, *site.node.keywords])
        insert_broadcast(site, session, render_run=lambda name: f"{name}.run({arguments})")
    elif fetches is not None and initialisers.is_partial_initialiser(site, fetches):
        report_missing_broadcast(site)
    elif is_initialiser is None and not is_initialised_in_function(site):
        site.report_unresolved(
            f"if {site.text_of(fetches) if fetches else 'this'} initialises the model's variables, all ranks must get "
            "the values of rank 0 after it: assign hccl_ops.broadcast([var], 0)[0] to each trainable variable",
            zh=f"若 {site.text_of(fetches) if fetches else '此处'} 初始化模型变量,其后各 rank 需取得 rank 0 的值:"
            "对每个可训练变量赋值 hccl_ops.broadcast([var], 0)[0]",
        )


def may_be_session_or_operation(site: Site, receiver: ast.expr) -> bool:
    """Return True unless the receiver is a module or function of another library, as in `subprocess.run(…)`."""
    name = site.qualified_name(receiver)
    return name is None or name.partition(".")[0] in site.file.project.own_module_names


def is_initialised_in_function(site: Site) -> bool:
    """Return True if another run in the same function initialises all variables."""
    function = site.source.function_around(site.node)
    runs = [node for node in site.file.index.methods.get("run", []) if site.source.function_around(node) is function]
    return any(node.args and initialisers.is_initialiser(site, node.args[0]) for node in runs if node is not site.node)


def insert_broadcast(site: Site, session: ast.expr | None, render_run: Callable[[str], str]) -> None:
    """Insert the broadcast operation and its run after the site's statement, or report that they are missing.

    `session`: None for the default session. `render_run` returns the code that runs the operation of a given name.
    """
    statement = site.source.statement_around(site.node)
    if (
        not isinstance(statement, SIMPLE_STATEMENTS)
        or is_deferred(site, statement)
        or is_graph_finalized(site)
        or is_on_one_rank(site)
    ):
        report_missing_broadcast(site)
        return
    name = reserve_local_name(site, statement, "bcast_op")
    definition = f"{name} = {broadcast.render_broadcast(site, broadcast.render_trainable_variables(site))}"
    if session is None or is_in_default_graph(site, session):
        lines = [definition, render_run(name)]
    elif starts_line(site, statement) and ends_line(site, statement):
        lines = [
            f"with {site.text_of(session)}.graph.as_default():",
            f"{site.source.indent_unit}{definition}",
            render_run(name),
        ]
    else:
        report_missing_broadcast(site)
        return
    site.edit.insert_after(statement, lines)
    report_broadcast(site)


def is_deferred(site: Site, statement: ast.stmt) -> bool:
    """Return True if the call is in a lambda or comprehension, which may not run where its statement runs."""
    for parent in site.source.ancestors(site.node):
        if parent is statement:
            return False
        if isinstance(parent, ast.Lambda | Comprehension):
            return True
    return False


def is_graph_finalized(site: Site) -> bool:
    """Return True if the function calls `finalize` before the site; no operation can be added to a finalised graph."""
    function = site.source.function_around(site.node)
    calls = site.file.index.methods.get("finalize", [])
    return any(site.source.function_around(node) is function and node.lineno < site.node.lineno for node in calls)


def is_on_one_rank(site: Site) -> bool:
    """Return True under `if rank == 0:`, where the other ranks would never reach the broadcast."""
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(parent, ast.If) and re.search(r"rank|is_chief|is_master", ast.unparse(parent.test)):
            return True
    return False


def is_in_default_graph(site: Site, session: ast.expr) -> bool:
    """Return True if an operation that is created at the site is in the session's graph."""
    if not isinstance(session, ast.Name):
        name = site.qualified_name(session.func) if isinstance(session, ast.Call) else None
        return name in ("tensorflow.get_default_session", "tensorflow.keras.backend.get_session", *SESSION_CLASSES)
    scope = site.file.names.scope_of(session)
    for block in site.source.ancestors(site.node):
        if isinstance(block, ast.With) and any(enters_session(item, session.id) for item in block.items):
            return True
    bound = site.file.names.lookup(session.id, scope) or []
    return bool(bound) and all(shares_default_graph(site, value) for value in bound)


def enters_session(item: ast.withitem, name: str) -> bool:
    """Return True for `with tf.Session() as name` and `with name:`, which also set the default graph."""
    session = item.optional_vars if item.optional_vars is not None else item.context_expr
    is_as_default = (
        isinstance(item.context_expr, ast.Call) and getattr(item.context_expr.func, "attr", "") == "as_default"
    )
    return isinstance(session, ast.Name) and session.id == name and not is_as_default


def shares_default_graph(site: Site, value: str | ast.expr | None) -> bool:
    """Return True for a session of the graph that is the default one at the site.

    The session has no `graph=`, and all blocks `with graph.as_default()` around it enclose the site too. If the session
    is opened in another function than the site, it must be at module level and the site in no such block.
    """
    if not isinstance(value, ast.Call) or site.qualified_name(value.func) not in SESSION_CLASSES:
        return False
    if len(value.args) > 1 or any(keyword.arg in ("graph", None) for keyword in value.keywords):
        return False
    if site.source.function_around(value) is not site.source.function_around(site.node):
        return site.source.function_around(value) is None and not find_graph_blocks(site, site.node)
    return find_graph_blocks(site, value) <= find_graph_blocks(site, site.node)


def find_graph_blocks(site: Site, node: ast.AST) -> set[ast.AST]:
    """Return the `with` blocks around a node that mention a graph: `with tf.Graph().as_default():`."""
    return {
        parent
        for parent in site.source.ancestors(node)
        if isinstance(parent, ast.With)
        and any("graph" in ast.unparse(item.context_expr).lower() for item in parent.items)
    }


@rule.call(*sorted(INITIALIZERS))
def report_initialiser_not_run(site: Site) -> None:
    """Report an initialiser if the code does not show where it is run."""
    if has_broadcast(site) or not is_training(site) or initialisers.is_run_somewhere(site, site.node):
        return
    site.report_unresolved(
        "the code does not show where this initialiser is run; after that all ranks must get the values of rank 0: "
        "assign hccl_ops.broadcast([var], 0)[0] to each trainable variable",
        zh="无法看出该初始化操作在何处执行:执行之后各 rank 需取得 rank 0 的值,即对每个可训练变量赋值 "
        "hccl_ops.broadcast([var], 0)[0]",
    )


def report_broadcast(site: Site) -> None:
    site.report_change("every rank starts from the values of rank 0", zh="各 rank 以 rank 0 的变量初值开始训练")


def report_missing_broadcast(site: Site) -> None:
    site.request_review(
        "all ranks must start from the same values: assign hccl_ops.broadcast([var], 0)[0] to each trainable variable "
        "after the initialiser, in the session's graph, or use NPUBroadcastGlobalVariablesHook",
        zh="各 rank 需以相同初值开始训练:在初始化之后、会话所用的图中,对每个可训练变量赋值 "
        "hccl_ops.broadcast([var], 0)[0],或使用 NPUBroadcastGlobalVariablesHook",
        risk="high",
    )


def is_training(site: Site) -> bool:
    """Return True if the file or its program trains, and the function around the site is not for evaluation or export.

    A function is not taken for evaluation by its name, such as `evaluate`, if it creates or runs a training operation.
    """
    function = site.source.function_around(site.node)
    if function is not None and is_named_for_evaluation(function.name) and not has_training_operation(function):
        return False
    calls = site.file.index.calls
    if any(name in site.file.index.methods for name in TRAINING_METHODS) or any(
        name in calls for name in OPTIMIZER_TRAINING_FUNCTIONS
    ):
        return True
    return not is_named_for_evaluation(PurePosixPath(site.file.path).stem) and is_training_program(site)


def has_training_operation(function: ast.AST) -> bool:
    """Return True for a function that creates a training operation, or runs one called `train_op` or the like."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in TRAINING_METHODS:
                return True
            fetched = [*node.args, *(keyword.value for keyword in node.keywords)] if node.func.attr == "run" else []
            if any(is_training_name(part) for value in fetched for part in ast.walk(value)):
                return True
    return False


def is_training_name(node: ast.AST) -> bool:
    """Return True for `train_op`, `model.train_step`, `self.optimizer`; not for `train_accuracy`."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return TRAINING_NAME.search(name.lower()) is not None


def is_training_program(site: Site) -> bool:
    """Return True if a program with this file trains without an Estimator and does not broadcast yet."""
    project = site.file.project
    estimators = {path for name in broadcast.ESTIMATORS for path in project.files_calling.get(name, ())}
    for files in find_programs(project, site.file.path):
        if files & project.training_files and not files & project.broadcast_files and not files & estimators:
            return True
    return False


def is_named_for_evaluation(name: str) -> bool:
    """Return True for `evaluate`, `run_test`; not for `train_and_eval`, `latest`."""
    words = [word.lower() for word in WORD_PATTERN.findall(name)]
    is_evaluation = any(word.startswith(EVALUATION_PREFIXES) for word in words)
    return is_evaluation and not any(word.startswith("train") for word in words)


def has_broadcast(site: Site) -> bool:
    """Return True if the file calls a broadcast or creates a broadcasting hook, of whatever variables."""
    return any(name in site.file.index.calls for name in BROADCASTS)


# ---- hooks


@rule.call(*HOOKS_POSITIONS)
def add_monitored_hook(site: Site) -> None:
    if is_training(site) and not has_broadcast(site):
        add_hook(site, HOOKS_POSITIONS[site.name])


@rule.method("train")
def add_canned_hook(site: Site) -> None:
    """Add the hook to the training of a canned Estimator, which does not broadcast by itself."""
    estimator = site.values.assigned_value(site.node.func.value)
    is_canned = isinstance(estimator, ast.Call) and site.qualified_name(estimator.func) in optimizers.CANNED_ESTIMATORS
    if is_canned and not has_broadcast(site):
        add_hook(site, position=1)


def add_hook(site: Site, position: int) -> None:
    hooks = site.argument("hooks", position)
    if site.has_unpacked_arguments or not site.is_editable:
        report_missing_broadcast(site)
        return
    rank = ranks.render_rank_quantity(site, site.node, "rank")
    hook = f"{site.import_npu_name('NPUBroadcastGlobalVariablesHook')}(0, {rank})"
    if hooks is None or is_none(hooks):
        site.set_argument("hooks", f"[{hook}]", position)
    else:
        broadcast.prepend_item(site, hooks, hook)
    report_broadcast(site)


@rule.call(*TRAINING_LOOPS)
def report_training_loop(site: Site) -> None:
    is_idle_supervisor = site.name.endswith("Supervisor") and not is_training(site)
    if not is_idle_supervisor and not has_broadcast(site):
        report_missing_broadcast(site)
