"""Wrap optimizers so that they average gradients over all ranks.

With `--distributed`:

     import tensorflow as tf
    +from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
     def train(loss):
         opt = tf.train.AdamOptimizer(0.001)
    +    opt = NPUDistributedOptimizer(opt)
         return opt.minimize(loss)

An optimizer is wrapped if it trains: it reaches minimize, compute_gradients or apply_gradients, a call that trains with
it, or a `return` in a project that wraps none itself. If the branches of an `if` create different optimizers, one line
after the `if` wraps them. A loss scale optimizer gets is_distributed=True, and its inner optimizer is wrapped. Wrapped
optimizers stay, and so do classes of other libraries. If the file does not show the optimizer's class (an entry of a
dictionary, getattr, a name), its training call is reported.
"""

from __future__ import annotations

import ast
import builtins

from viaduct.migration.lookups import branches, contains_call, find_reads, is_called_in_project, mark_once
from viaduct.migration.options import is_distributed
from viaduct.migration.predicates import is_string
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers
from viaduct.migration.values import kind_of_call

# After tpu_spec, which unwraps optimizers, and distribute_sum, whose optimizers need no wrapper.
rule = Rule(
    __name__, target_needs="optimizers", spec_rows=("V2",), when=is_distributed, after=("tpu_spec", "distribute_sum")
)

BUILTIN_FUNCTIONS = frozenset(dir(builtins))
UNKNOWN_USES = {"unknown", "returned", "passed to wrapper"}


@rule.node(ast.Call, only_if_file_contains=("Optimizer", *optimizers.TRAINING_METHODS))
def wrap_optimizer(site: Site) -> None:
    """Wrap an optimizer that trains; report one whose use is not known."""
    if not optimizers.is_optimizer(site, site.node) or optimizers.has_optimizer_argument(site, site.node):
        return
    if site.qualified_name(site.node.func) == optimizers.SYNC_REPLICAS:
        return  # reported by distribute_servers
    outer = find_conditional_around(site)
    parent = site.source.parents[outer]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        wrap_variable(site, parent)
    elif classify_use(site, outer) in ("trains", "applies"):
        wrap_expression(site, outer)
    elif classify_use(site, outer) in UNKNOWN_USES:
        report_unknown_use(site)


def find_conditional_around(site: Site) -> ast.expr:
    """Return the conditional expression around the call, `A() if x else B()`; else the call itself."""
    node: ast.AST = site.node
    while isinstance(parent := site.source.parents[node], ast.IfExp) and parent.test is not node:
        node = parent
    return node  # type: ignore[return-value]


def classify_use(site: Site, node: ast.expr) -> str:
    """Classify the use of an optimizer at a node that creates or reads it.

    "trains"; "applies": only apply_gradients is called; "summed": its gradients go through an allreduce; "wrapped": for
    several ranks, already; "passed to wrapper": a DistributedOptimizer of an unknown object gets it; "returned": by a
    function of a project that wraps optimizers itself, perhaps this one; "nothing": it does not train; "unknown".
    """
    parent = site.source.parents[node]
    if isinstance(parent, ast.keyword):
        parent = site.source.parents[parent]
    if isinstance(parent, ast.Attribute):
        return classify_method(site, parent)
    in_tuple = isinstance(parent, ast.Tuple) and isinstance(site.source.parents[parent], ast.Return)
    if isinstance(parent, ast.Return) or in_tuple:
        return "returned" if is_called_in_project(site, optimizers.WRAPPERS) else "trains"
    if isinstance(parent, ast.Call) and node is not parent.func:
        return classify_argument(site, parent, node)
    if isinstance(parent, ast.Lambda) and parent.body is node:
        return classify_use(site, parent)
    if isinstance(parent, ast.Dict | ast.List | ast.Tuple | ast.Assign | ast.Lambda):
        return "unknown"
    return "nothing"


def classify_method(site: Site, method: ast.Attribute) -> str:
    """Classify the use of an optimizer by a call of one of its methods, see `classify_use`."""
    if method.attr not in optimizers.TRAINING_METHODS:
        return "nothing"
    if method.attr == "compute_gradients" and optimizers.is_summed_by_allreduce(site, site.source.parents[method]):
        return "summed"
    if method.attr != "apply_gradients":
        return "trains"
    return "nothing" if site.options.reduction == "sum" and averages_by_hand(site) else "applies"


def classify_argument(site: Site, call: ast.Call, node: ast.expr) -> str:
    """Classify the use of an optimizer that is an argument of a call, see `classify_use`."""
    name = site.qualified_name(call.func)
    if name in optimizers.WRAPPERS:
        return "wrapped"
    if getattr(call.func, "attr", "") == "DistributedOptimizer":
        return "passed to wrapper"
    if getattr(call.func, "id", "") in BUILTIN_FUNCTIONS or getattr(call.func, "attr", "") == "compile":
        return "nothing"  # a Keras model's optimizer is wrapped by keras_distributed_optimizer
    if optimizers.trains_with_argument(site, call) or optimizers.trains_in_project(site, call, node):
        return "trains"
    return "unknown"


def wrap_variable(site: Site, statement: ast.Assign) -> None:
    """Wrap an optimizer in a line after its assignment, or after the `if` that chooses it."""
    target = statement.targets[0]
    if not isinstance(target, ast.Name | ast.Attribute):
        report_unknown_use(site)
        return
    uses = {classify_use(site, node) for node in find_reads(site, target)}
    if "wrapped" in uses or ("summed" in uses and "trains" not in uses):
        return
    uses = {"trains" if use in ("applies", "summed") else use for use in uses}
    if "trains" not in uses or "passed to wrapper" in uses:
        if uses & UNKNOWN_USES:
            report_unknown_use(site)
        return
    location = find_outermost_choice(site, statement, target) or statement
    if mark_once(site, "wrapped", location):
        name = site.text_of(target)
        site.edit.insert_after(location, [f"{name} = {site.import_npu_name(choose_wrapper(site))}({name})"])
        report_wrapped(site)


def find_outermost_choice(site: Site, statement: ast.Assign, target: ast.expr) -> ast.If | None:
    """Return the outermost `if` whose branches all create the optimizer, raise or return.

    None without such an `if`, or if the optimizer is used within it.
    """
    outermost = None
    for parent in site.source.ancestors(statement):
        if not isinstance(parent, ast.If):
            break
        outermost = parent if all_branches_create(site, parent, target) else outermost
    reads = set(find_reads(site, target))
    return outermost if outermost is not None and not any(node in reads for node in ast.walk(outermost)) else None


def all_branches_create(site: Site, choice: ast.If, target: ast.expr) -> bool:
    return all(creates_optimizer(site, branch, target) for branch in (choice.body, choice.orelse))


def creates_optimizer(site: Site, branch: list[ast.stmt], target: ast.expr) -> bool:
    """Return True for a block that assigns an optimizer to the target, raises or returns."""
    for statement in branch:
        if isinstance(statement, ast.Raise | ast.Return):
            return True
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == ast.unparse(target):
            return all(optimizers.is_optimizer(site, value) for value in branches(statement.value))
        if isinstance(statement, ast.If) and all_branches_create(site, statement, target):
            return True
    return False


def wrap_expression(site: Site, node: ast.expr) -> None:
    if not site.is_editable or not mark_once(site, "wrapped", node):
        return
    site.edit.enclose(node, f"{site.import_npu_name(choose_wrapper(site))}(")
    report_wrapped(site)


def choose_wrapper(site: Site) -> str:
    """Return the name of Ascend's class; with `--style wrapper` of Ascend's function."""
    return "npu_distributed_optimizer_wrapper" if site.options.style == "wrapper" else "NPUDistributedOptimizer"


def report_wrapped(site: Site) -> None:
    site.report_change(
        "the optimizer averages its gradients over all ranks", zh="用 NPU 分布式优化器包装,梯度在各 rank 间求平均"
    )


def report_unknown_use(site: Site) -> None:
    name = ast.unparse(site.node.func)
    site.request_review(
        f"the code does not show how this {name} is used: if it trains, wrap it in NPUDistributedOptimizer, once",
        zh=f"无法确定此 {name} 的去向:若用于训练,请用 NPUDistributedOptimizer 包装一次",
        risk="high",
    )


@rule.call(optimizers.LOSS_SCALE)
def mark_distributed(site: Site) -> None:
    """Add is_distributed=True to the loss scale optimizer: all ranks must skip an update together."""
    if site.argument("is_distributed", 2) is None and not site.has_unpacked_arguments and site.is_editable:
        site.edit.add_argument(site.node, "is_distributed=True")
        site.report_change(
            "the loss scale optimizer gets is_distributed=True", zh="loss scale 优化器声明 is_distributed=True"
        )


@rule.method("minimize", "apply_gradients")
def report_unwrapped(site: Site) -> None:
    """Report an optimizer that is not wrapped because the code does not show its class."""
    receiver = site.node.func.value
    if (
        site.qualified_name(receiver)
        or optimizers.is_in_optimizer_class(site)
        or optimizers.is_known_optimizer(site, receiver)
    ):
        return
    if site.name == "apply_gradients" and averages_by_hand(site):
        return
    origin = site.values.assigned_value(receiver)
    name = ast.unparse(origin.func).rpartition(".")[2] if isinstance(origin, ast.Call) else ""
    if name.endswith("Optimizer"):
        site.request_review(
            f"if {name} is a TensorFlow optimizer, which the code does not show, wrap it in NPUDistributedOptimizer",
            zh=f"无法确认 {name} 是 TensorFlow 优化器:若是,请用 NPUDistributedOptimizer 包装",
        )
        return
    site.request_review(
        f"the code does not show how {site.text_of(receiver)} is created, so it is not wrapped: without "
        "NPUDistributedOptimizer every rank trains its own model",
        zh=f"无法看出 {site.text_of(receiver)} 如何创建,未做包装:不使用 NPUDistributedOptimizer 时各 rank 各自训练",
        risk="high",
    )


def averages_by_hand(site: Site) -> bool:
    """Return True if the function calls tf.gradients or an allreduce, so that distribute_gradients edits it."""
    function = site.source.function_around(site.node) or site.source.tree
    return contains_call(site, function, optimizers.AVERAGING_CALLS)


@rule.call("tensorflow.contrib.layers.optimize_loss")
def report_optimize_loss(site: Site) -> None:
    """Report an optimizer that optimize_loss creates from a name or a class: it cannot be wrapped."""
    optimizer = site.argument("optimizer", 3)
    if optimizer is None:
        return
    origin = site.values.assigned_value(optimizer)
    if is_string(origin) or kind_of_call(site.qualified_name(optimizer) or "") == "optimizer":
        site.request_review(
            f"optimize_loss creates the optimizer {site.text_of(optimizer)}: pass one that is wrapped in "
            "NPUDistributedOptimizer",
            zh=f"optimize_loss 会自行创建优化器 {site.text_of(optimizer)}:"
            "请传入用 NPUDistributedOptimizer 包装的优化器",
            risk="high",
        )
