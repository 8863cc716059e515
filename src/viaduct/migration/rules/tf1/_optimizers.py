"""TensorFlow's optimizers, their wrappers for several ranks, and the calls that train with them."""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import DEFINING_MODULE, HCCL_OPERATORS, full_name
from viaduct.migration.lookups import bind_arguments, bindings_of, contains_call, plain_name, positional_parameters
from viaduct.migration.names import Bindings
from viaduct.migration.predicates import is_none
from viaduct.migration.project_usage import OPTIMIZER_TRAINING_FUNCTIONS
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1._config_proto import find_attribute_assignments
from viaduct.migration.source import FunctionNode
from viaduct.migration.values import kind_of_call

OPTIMIZER_MODULE = DEFINING_MODULE["NPUDistributedOptimizer"]
WRAPPERS = (
    f"{OPTIMIZER_MODULE}.NPUDistributedOptimizer",
    f"{OPTIMIZER_MODULE}.NPUOptimizer",
    f"{OPTIMIZER_MODULE}.KerasDistributeOptimizer",
    f"{OPTIMIZER_MODULE}.npu_distributed_optimizer_wrapper",
    full_name("npu_tf_optimizer"),
    full_name("npu_keras_optimizer"),
    *horovod.qualified_names("DistributedOptimizer"),
)
LOSS_SCALE = full_name("NPULossScaleOptimizer")
# Calls that average gradients without a wrapper; distribute_gradients adds the averaging to tf.gradients.
AVERAGING_CALLS = ("tensorflow.gradients", f"{OPTIMIZER_MODULE}.npu_allreduce", f"{OPTIMIZER_MODULE}.allreduce")
SYNC_REPLICAS = "tensorflow.train.SyncReplicasOptimizer"
OPTIMIZER_KINDS = ("optimizer", "npu_optimizer", "loss_scale_optimizer", "keras_optimizer")  # results of values.kind
TRAINING_METHODS = ("minimize", "compute_gradients", "apply_gradients")  # methods of an optimizer
CONSUMING_METHODS = ("create_estimator_spec",)  # method of an Estimator's head: trains with its argument `optimizer`
# Ready-made Estimators, which TensorFlow calls canned: their constructors take an optimizer.
CANNED_ESTIMATORS = tuple(
    f"tensorflow.estimator.{family}{kind}"
    for family in ("DNN", "Linear", "DNNLinearCombined", "Baseline")
    for kind in ("Classifier", "Regressor", "Estimator")
)


def is_optimizer(site: Site, call: ast.AST) -> bool:
    """Return True for a call that creates an optimizer of TensorFlow, or of a project's subclass of one.

    False for wrappers for several ranks.
    """
    name = site.qualified_name(call.func) if isinstance(call, ast.Call) else None
    if name is None or name in ("tensorflow.train.Optimizer", *WRAPPERS):
        return False
    is_internal = name.startswith("tensorflow.python.training.") and name.endswith("Optimizer")
    is_rewrite = name.endswith(".enable_mixed_precision_graph_rewrite")
    is_public = kind_of_call(name) == "optimizer" and not is_rewrite
    return is_public or is_internal or name in site.file.project.optimizer_classes


def has_optimizer_argument(site: Site, call: ast.Call) -> bool:
    """Return True for a call with an optimizer among its arguments, as averaging and clipping optimizers have."""
    arguments = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg in ("opt", "optimizer"))]
    values = [value for item in arguments for value in find_possible_values(site, item)]
    return any(
        isinstance(value, ast.Call) and value is not call and is_optimizer_or_wrapper(site, value) for value in values
    )


def find_possible_values(site: Site, node: ast.expr) -> Bindings:
    """Return an expression and, if it is a name, all its bindings (see names.Bindings)."""
    return [node, *(bindings_of(site, node) if isinstance(node, ast.Name) else [])]


def is_optimizer_or_wrapper(site: Site, call: ast.Call) -> bool:
    """Return True for a call that creates an optimizer, or wraps one for several ranks."""
    return is_optimizer(site, call) or site.qualified_name(call.func) in WRAPPERS


def is_summed_by_allreduce(site: Site, call: ast.AST) -> bool:
    """Return True for compute_gradients in a list comprehension with hccl_ops.allreduce, written by distribute_sum."""
    loop = site.source.parents.get(call)
    comprehension = site.source.parents.get(loop) if isinstance(loop, ast.comprehension) else None
    if not isinstance(comprehension, ast.ListComp):
        return False
    return contains_call(site, comprehension.elt, (f"{HCCL_OPERATORS}.allreduce",))


def is_known_optimizer(site: Site, node: ast.expr, depth: int = 0) -> bool:
    """Return True if every value of an expression is an optimizer, or the result of a call of TensorFlow or Keras.

    Up to five assignments of one variable or attribute to another are followed.
    """
    if site.values.kind(node) in OPTIMIZER_KINDS:
        return True
    if isinstance(node, ast.Call):
        name = site.qualified_name(node.func) or ""
        is_library = name == LOSS_SCALE or name.startswith(("tensorflow.", "keras."))
        return is_library or is_optimizer_or_wrapper(site, node) or has_optimizer_argument(site, node)
    if isinstance(node, ast.IfExp):
        return is_known_optimizer(site, node.body, depth) and is_known_optimizer(site, node.orelse, depth)
    if isinstance(node, ast.Name) and depth < 5:
        return all(
            isinstance(value, ast.expr) and (is_none(value) or is_known_optimizer(site, value, depth + 1))
            for value in bindings_of(site, node) or [None]
        )
    if isinstance(node, ast.Attribute) and depth < 5:
        values = [inner.value for inner in find_attribute_assignments(site, node) if not is_none(inner.value)]
        return bool(values) and all(is_known_optimizer(site, value, depth + 1) for value in values)
    return False


def is_in_optimizer_class(site: Site) -> bool:
    """Return True for `self.minimize(…)`, and for any call in a method that is called minimize or the like.

    There an optimizer class passes the call on, as in `super().minimize(…)` or `self.inner.minimize(…)`.
    """
    function = site.source.function_around(site.node)
    in_method = function is not None and isinstance(site.source.parents[function], ast.ClassDef)
    receiver = site.node.func.value
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        return True
    return in_method and function is not None and function.name in TRAINING_METHODS


def trains_with_argument(site: Site, call: ast.Call) -> bool:
    """Return True for a library's call that trains with the optimizer among its arguments, or wraps it in another."""
    name = site.qualified_name(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if (
        name in OPTIMIZER_TRAINING_FUNCTIONS
        or name in CANNED_ESTIMATORS
        or name == LOSS_SCALE
        or method in CONSUMING_METHODS
    ):
        return True
    return site.values.kind(call) == "loss_scale_optimizer" or is_optimizer(site, call)


def trains_in_project(site: Site, call: ast.Call, value: ast.expr) -> bool:
    """Return True for a call of a project's function that trains with the parameter that gets the value."""
    receiver = find_receiving_parameter(site, call, value)
    if receiver is None:
        return False
    function, parameter = receiver
    return any(is_training_call(node, parameter) for node in ast.walk(function))


def find_receiving_parameter(site: Site, call: ast.Call, value: ast.expr) -> tuple[FunctionNode, str] | None:
    """Return the project's function that a call runs, and the parameter that gets the value; None if unknown."""
    called = site.qualified_name(call.func) or ""
    if called not in site.file.project.functions:
        return None
    _, function = site.file.project.functions[called]
    passed = bind_arguments(call, positional_parameters(function)).items()
    return next(((function, name) for name, argument in passed if argument is value), None)


def is_training_call(node: ast.AST, name: str) -> bool:
    """Return True for a call of minimize, compute_gradients or apply_gradients on the name."""
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in TRAINING_METHODS and plain_name(method.value) == name


def unwrap_optimizer(site: Site, optimizer: ast.expr) -> None:
    """Replace the site's call, which wraps an optimizer, by the optimizer; remove the statement `opt = wrap(opt)`."""
    statement = site.source.statement_around(site.node)
    is_assigned = isinstance(statement, ast.Assign) and statement.value is site.node and len(statement.targets) == 1
    if is_assigned and ast.unparse(statement.targets[0]) == ast.unparse(optimizer):  # type: ignore[attr-defined]
        site.edit.remove_statement(statement)
    else:
        site.edit.replace_node(site.node, site.text_of(optimizer))


def report_sum(site: Site) -> None:
    site.report_change(
        "gradients are summed over all ranks, as requested: the learning rate must suit the number of ranks",
        zh="按要求对各 rank 的梯度求和(而非平均):学习率须与 rank 数匹配",
        risk="medium",
    )
