"""Record how a project's files use TensorFlow and Horovod: session configs, Keras models, training, ranks, and so on.

A rule works on one file. It learns from this record, for example, if an imported file needs communication between
ranks. An initialiser is the operator that `tf.global_variables_initializer()` returns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from viaduct.cards.tensorflow_api import COLLECTIVE_PREFIXES, HCCL_OPERATORS, full_name
from viaduct.migration.import_graph import list_program_escapes
from viaduct.migration.names import Names
from viaduct.migration.predicates import find_argument, is_literal_in
from viaduct.migration.project import Project, iterate_arguments, returns_of
from viaduct.migration.sessions import CONFIG_ARGUMENTS, CONFIG_ARGUMENTS_BY_METHOD
from viaduct.migration.source import FunctionNode
from viaduct.migration.values import Values, kind_of_call

KERAS_RUN_METHODS = {"fit", "fit_generator", "predict", "train_on_batch"}
MAX_DEPTH = 8  # of nested lambdas, partials, conditions and calls into which `find_functions` looks
ESTIMATOR_RUN_METHODS = {"train", "evaluate", "predict"}
# Class of a spec -> the method of the Estimator that train_and_evaluate calls with it.
SPEC_TO_RUN = {"tensorflow.estimator.TrainSpec": "train", "tensorflow.estimator.EvalSpec": "evaluate"}
HOROVOD_RANK_CALLS = {"rank", "size", "local_rank", "local_size"}
TRAINING_METHODS = ("minimize", "apply_gradients")
# Functions that take an optimizer and make its train_op, or wrap it.
OPTIMIZER_TRAINING_FUNCTIONS = {
    "tensorflow.contrib.layers.optimize_loss", "tensorflow.contrib.training.create_train_op",
    "tensorflow.contrib.slim.learning.create_train_op", "tf_slim.learning.create_train_op",
    "tensorflow.contrib.slim.training.create_train_op", "tf_slim.create_train_op",
    "tensorflow.estimator.clip_gradients_by_norm",
}  # fmt: skip
INITIALIZERS = {
    "tensorflow.global_variables_initializer", "tensorflow.initialize_all_variables",
    "tensorflow.initializers.global_variables",
}  # fmt: skip
VARIABLE_WORDS = re.compile(
    rf"{'|'.join(TRAINING_METHODS)}|initial|[bB]roadcast|npu_hooks_append|train_op|optimize_loss|clip_"
)
"""`record_variables` skips a text without any of these."""
GROUPING_CALLS = {"tensorflow.group", "tensorflow.tuple"}
BROADCASTS = {
    *(f"{HCCL_OPERATORS}.broadcast", full_name("npu_hooks_append")),
    full_name("NPUBroadcastGlobalVariablesHook"),
    "horovod.tensorflow.BroadcastGlobalVariablesHook", "horovod.tensorflow.broadcast_global_variables",
    "horovod.tensorflow.broadcast_variables",
}  # fmt: skip
# Members of tf.distribute.InputContext by which a dataset is sharded.
INPUT_CONTEXT_NAMES = ("num_input_pipelines", "input_pipeline_id")


def record_usage(project: Project, files: dict[str, Names]) -> None:
    """Record how the files use TensorFlow: training, Keras models, broadcasts, ranks, input functions, and so on."""
    for path, names in files.items():
        values = Values(names, project)
        for call in names.source.nodes_of_type(ast.Call):
            record_call(project, path, call, values)
        if any(text in names.source.text for text in INPUT_CONTEXT_NAMES):
            project.rank_files.add(path)
        if "stimator" in names.source.text and any(
            find_estimator_cycle(function, values) for function in names.source.functions
        ):
            project.estimator_cycle_files.add(path)
        project.own_method_names |= {
            function.name
            for function in names.source.functions
            if isinstance(names.source.parents[function], ast.ClassDef)
        }
        record_variables(project, path, values)
        record_npu_helpers(project, names)
    record_optimizers(project, files)
    for path in project.horovod_rank_files:
        if not list_program_escapes(project, path):
            project.rank_files.add(path)


def record_call(project: Project, path: str, call: ast.Call, values: Values) -> None:
    """Record what a call does: call another package, query ranks, run a Keras model, pass an input_fn or a config."""
    name = values.names.qualified(call.func)
    if name is not None and name not in project.functions:
        project.files_calling.setdefault(name, set()).add(path)
    if name is not None and is_rank_query(name):
        (project.horovod_rank_files if name.startswith("horovod.") else project.rank_files).add(path)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in KERAS_RUN_METHODS and values.kind(call.func.value) == "keras_model":  # type: ignore[attr-defined]
        project.keras_files.add(path)
    if name in SPEC_TO_RUN:
        record_input_functions(project, values, call, SPEC_TO_RUN[name], is_first_positional=True)
    elif method in ESTIMATOR_RUN_METHODS:
        record_input_functions(project, values, call, method, is_first_positional=runs_estimator(call.func, values))
    slot = CONFIG_ARGUMENTS.get(name or "") or CONFIG_ARGUMENTS_BY_METHOD.get(method)
    if slot is not None:
        record_config_helper(project, values, find_argument(call, *slot))


def record_variables(project: Project, path: str, values: Values) -> None:
    """Record files that train or broadcast variables, and the names, attributes and results that are an initialiser.

    Keys of `project.initialisers`: `module.name`, `.attribute`, `module.function(parameter)`, and for results
    `module.function` and `module.Class.method`, with `[index]` for an element of a returned tuple.
    """
    names = values.names
    if VARIABLE_WORDS.search(names.source.text) is None:
        return
    for call in names.source.nodes_of_type(ast.Call):
        name = names.qualified(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if is_training_call(project, name, method):
            project.training_files.add(path)
        if name in BROADCASTS:
            project.broadcast_files.add(path)
        if name in project.functions:
            record_passed_initialiser(project, values, name, call)
    for node in names.source.nodes_of_type(ast.Assign):
        if len(node.targets) == 1:
            record_assigned_initialiser(project, values, node.targets[0], node.value)
    for function in names.source.functions:
        record_returned_initialiser(project, values, function)


def is_training_call(project: Project, name: str, method: str) -> bool:
    """Return True for `opt.minimize(…)` and functions that train with an optimizer, not for scipy's `minimize`."""
    if name in OPTIMIZER_TRAINING_FUNCTIONS:
        return True
    root = name.partition(".")[0]
    return method in TRAINING_METHODS and (root in ("", "tensorflow") or root in project.own_module_names)


def record_npu_helpers(project: Project, names: Names) -> None:
    """Record the functions with the string "NpuOptimizer": in migrated code they add it to a session's config."""
    if "NpuOptimizer" not in names.source.text:
        return
    for node in names.source.nodes_of_type(ast.Constant):
        if node.value == "NpuOptimizer":
            function = names.source.function_around(node)
            owner = names.source.parents.get(function) if function is not None else None
            if function is not None and isinstance(owner, ast.ClassDef):
                project.npu_optimizer_functions |= {f"{names.module}.{owner.name}.{function.name}", f".{function.name}"}
            elif function is not None:
                project.npu_optimizer_functions.add(f"{names.module}.{function.name}")


def record_assigned_initialiser(project: Project, values: Values, target: ast.expr, value: ast.expr) -> None:
    """Record an attribute or module-level name that gets an initialiser, and attributes that get other values."""
    if isinstance(target, ast.Attribute):
        is_initialiser = makes_initialiser(values, value)
        (project.initialisers if is_initialiser else project.attributes_with_other_values).add(f".{target.attr}")
        return
    is_module_level = isinstance(target, ast.Name) and isinstance(values.names.scope_of(target).node, ast.Module)
    if isinstance(target, ast.Name) and is_module_level and makes_initialiser(values, value):
        project.initialisers.add(f"{values.names.module}.{target.id}")


def record_returned_initialiser(project: Project, values: Values, function: FunctionNode) -> None:
    """Record a function that returns an initialiser, alone or in a tuple."""
    owner = values.names.source.parents.get(function)
    prefix = f"{values.names.module}.{owner.name}" if isinstance(owner, ast.ClassDef) else values.names.module
    for statement in returns_of(values.names, function):
        if statement.value is None:
            continue
        if isinstance(statement.value, ast.Tuple):
            for index, part in enumerate(statement.value.elts):
                if makes_initialiser(values, part):
                    project.initialisers.add(f"{prefix}.{function.name}[{index}]")
        elif makes_initialiser(values, statement.value):
            project.initialisers.add(f"{prefix}.{function.name}")


def record_passed_initialiser(project: Project, values: Values, name: str, call: ast.Call) -> None:
    """Record the parameters to which a call passes an initialiser."""
    for parameter, value in iterate_arguments(project, name, call):
        if makes_initialiser(values, value):
            project.initialisers.add(f"{name}({parameter})")


def makes_initialiser(values: Values, node: ast.expr) -> bool:
    """Return True for the result of global_variables_initializer, also through a name or in a group, list or tuple."""
    origin = values.assigned_value(node)
    if isinstance(origin, ast.List | ast.Tuple):
        return any(makes_initialiser(values, element) for element in origin.elts)
    if not isinstance(origin, ast.Call):
        return False
    name = values.names.qualified(origin.func)
    return name in INITIALIZERS or (
        name in GROUPING_CALLS and any(makes_initialiser(values, value) for value in origin.args)
    )


def record_input_functions(
    project: Project, values: Values, call: ast.Call, run: str, *, is_first_positional: bool
) -> None:
    """Record the functions that a call passes as input_fn, by keyword or first. `run`: train, evaluate or predict."""
    inputs = [keyword.value for keyword in call.keywords if keyword.arg == "input_fn"]
    for keyword in call.keywords:
        if keyword.arg is None:
            inputs += unpack_dictionary(values, keyword.value, "input_fn")
    if not inputs and is_first_positional:
        inputs = call.args[:1]
    for value in inputs:
        for name in find_functions(values, value):
            project.input_functions.setdefault(name, set()).add(run)


def unpack_dictionary(values: Values, value: ast.expr, keyword_name: str) -> Iterator[ast.expr]:
    """Yield the value that `**value` passes for a keyword, if the text shows the dictionary."""
    origin = values.assigned_value(value)
    if isinstance(origin, ast.Dict):
        pairs = zip(origin.keys, origin.values, strict=True)
        yield from (element for key, element in pairs if is_literal_in(key, keyword_name))
    elif isinstance(origin, ast.Call) and values.names.qualified(origin.func) in (None, "dict", "builtins.dict"):
        yield from (keyword.value for keyword in origin.keywords if keyword.arg == keyword_name)


def find_functions(values: Values, value: ast.expr, depth: int = 0) -> Iterator[str]:
    """Yield the names of functions that an expression stands for or calls; methods as `*.name`."""
    origin = values.assigned_value(value)
    parts: list[ast.expr] = []
    if isinstance(origin, ast.Lambda):
        parts = [origin.body]
    elif isinstance(origin, ast.IfExp):
        parts = [origin.body, origin.orelse]
    elif isinstance(origin, ast.BoolOp):
        parts = origin.values
    elif isinstance(origin, ast.Call):
        callee = values.names.qualified(origin.func)
        is_partial = callee in ("functools.partial", "functools.partialmethod") and bool(origin.args)
        parts = [origin.args[0] if is_partial else origin.func]
    elif (name := values.names.qualified(origin)) is not None:
        yield name
    elif isinstance(origin, ast.Attribute):
        yield f"*.{origin.attr}"
    for part in parts if depth < MAX_DEPTH else ():
        yield from find_functions(values, part, depth + 1)


def is_rank_query(name: str) -> bool:
    """Return True for Horovod's functions that return a rank or a size, and for all functions of HCCL."""
    if name.startswith("horovod."):
        return name.rpartition(".")[2] in HOROVOD_RANK_CALLS
    return name.startswith(COLLECTIVE_PREFIXES)


def record_optimizers(project: Project, files: dict[str, Names]) -> None:
    """Record the top-level classes that derive from a TensorFlow optimizer, directly or through such a class."""
    bases_by_class = {
        f"{names.module}.{node.name}": [names.qualified(base) or "" for base in node.bases]
        for names in files.values()
        for node in names.source.tree.body
        if isinstance(node, ast.ClassDef) and node.bases
    }
    found = {name for name, bases in bases_by_class.items() if any(kind_of_call(base) == "optimizer" for base in bases)}
    while found:
        project.optimizer_classes |= found
        found = {name for name in bases_by_class.keys() - project.optimizer_classes if found & {*bases_by_class[name]}}


def record_config_helper(project: Project, values: Values, value: ast.expr | None) -> None:
    """Record a function of the project that makes the config of a session; rules edit it instead of each session."""
    origin = values.assigned_value(value) if value is not None else None
    helper = values.names.qualified(origin.func) if isinstance(origin, ast.Call) else None
    if helper is not None and helper in project.functions:
        project.session_config_functions.add(helper)


def find_estimator_cycle(function: ast.AST, values: Values) -> list[ast.Call]:
    """Return the train, evaluate and predict calls of Estimators before the last such call, and those in a loop."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and runs_estimator(node.func, values)]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    return [call for call in calls if call is not calls[-1] or is_in_loop(call, function, values)]


def runs_estimator(callee: ast.expr, values: Values) -> bool:
    """Return True for the function in `estimator.train(…)`, `evaluate` or `predict`."""
    if not isinstance(callee, ast.Attribute) or callee.attr not in ESTIMATOR_RUN_METHODS:
        return False
    return values.kind(callee.value) in ("estimator", "npu_estimator")


def is_in_loop(node: ast.AST, function: ast.AST, values: Values) -> bool:
    parents = takewhile(lambda parent: parent is not function, values.names.source.ancestors(node))
    return any(isinstance(parent, ast.For | ast.AsyncFor | ast.While) for parent in parents)
