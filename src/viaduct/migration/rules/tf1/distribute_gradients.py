"""Average the gradients that `tf.gradients` computes over all ranks.

With `--distributed`:

     import tensorflow as tf
     from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
     def train(loss):
         opt = tf.train.AdamOptimizer(0.001)
         opt = NPUDistributedOptimizer(opt)
         tvars = tf.trainable_variables()
    -    grads = tf.gradients(loss, tvars)
    +    grads = [grad for grad, _ in opt.compute_gradients(loss, tvars)]
         return opt.apply_gradients(zip(grads, tvars))

Only with `--distributed`, and for gradients that reach apply_gradients together with their variables, or are taken of
all trainable variables: penalties and saliency maps stay. Gradients that are applied to variables which the file does
not show to be those need manual review. tf.gradients knows of no other rank; the wrapped optimizer averages, and gives
None where there is no gradient, as before. Where the optimizer is not wrapped by then, and with `--style wrapper`, the
gradients go through npu_allreduce; with `--reduction sum` always, as `npu_allreduce(…, "sum")`.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import HCCL_OPERATORS
from viaduct.migration.lookups import bindings_of
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers

rule = Rule(
    __name__,
    when=lambda options: options.distributed,
    after=("distribute_optimizer",),
)

NEW_KEYWORDS = {  # keyword of tf.gradients -> of compute_gradients
    "grad_ys": "grad_loss",
    "aggregation_method": "aggregation_method",
    "colocate_gradients_with_ops": "colocate_gradients_with_ops",
}
EXCHANGING_CALLS = (f"{optimizers.OPTIMIZER_MODULE}.npu_allreduce", f"{optimizers.OPTIMIZER_MODULE}.allreduce")
GRADIENT_CALLS = ("tensorflow.gradients", f"{HCCL_OPERATORS}.allreduce", *EXCHANGING_CALLS)


@rule.call("tensorflow.gradients")
def average_gradients(site: Site) -> None:
    around = (parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call))
    if any(site.qualified(call.func) in EXCHANGING_CALLS for call in around) or not site.is_editable:
        return
    applied = find_application(site)
    if applied is None:
        return
    variables = site.argument("xs", 1)
    if variables is None or not is_of_updated_variables(site, applied, variables):
        site.request_review(
            "if these are the gradients of the training loss, average them: opt.compute_gradients of the wrapped "
            "optimizer, or npu_allreduce",
            zh="若此处为训练 loss 的梯度,请在各 rank 间求平均:使用包装后优化器的 compute_gradients,或 npu_allreduce",
            risk="high",
        )
        return
    if site.options.reduction == "sum":
        add_allreduce(site, arguments=', "sum"')
        optimizers.report_sum(site)
        return
    if not use_compute_gradients(site, applied):
        add_allreduce(site)
    site.report_change("gradients are averaged over all ranks", zh="梯度在各 rank 间求平均")


def add_allreduce(site: Site, arguments: str = "") -> None:
    """Pass the gradients through npu_allreduce, with further arguments if there are any."""
    start, end = site.source.span(site.node)
    site.edit.insert(start, f"{site.import_name('npu_allreduce')}(")
    site.edit.insert(end, f"{arguments})")


def find_application(site: Site) -> ast.Call | None:
    """Return the apply_gradients that these gradients reach, through whatever clips them on the way.

    None if they reach none, or if they go through an allreduce on the way.
    """
    around = site.source.function(site.node) or site.source.tree
    statement = site.source.statement(site.node)
    if not isinstance(statement, ast.Assign):
        return next((call for call in calls_of_apply(statement) if site.node in ast.walk(call)), None)
    reached = targets(statement)  # names that hold the gradients, or something made of them
    exchanged = are_exchanged(site, around, reached)
    simple = ast.Assign | ast.Expr | ast.Return | ast.AugAssign | ast.AnnAssign
    statements = [node for node in ast.walk(around) if isinstance(node, simple)]
    for later in sorted(statements, key=lambda node: (node.lineno, node.col_offset)):
        if later.lineno < statement.lineno or later is statement:
            continue
        for call in calls_of_apply(later):
            if any(mentions(site, argument, reached) for argument in [*call.args, *call.keywords]):
                return None if exchanged else call
        if isinstance(later, ast.Assign) and mentions(site, later.value, reached):
            reached |= targets(later)
    return None


def calls_of_apply(statement: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "apply_gradients"]


def targets(statement: ast.Assign) -> set[str]:
    stored = (node for target in statement.targets for node in ast.walk(target))
    return {node.id for node in stored if isinstance(node, ast.Name) and node.id != "_"}


def mentions(site: Site, node: ast.AST, names: set[str]) -> bool:
    """Return True if a node reads one of the names outside calls that compute gradients or exchange them.

    In such a call the names are part of a loss: one with a penalty on gradients.
    """
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Name) and item.id in names:
            return True
        if not (isinstance(item, ast.Call) and computes_gradients(site, item)):
            pending += ast.iter_child_nodes(item)
    return False


def computes_gradients(site: Site, call: ast.Call) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method in ("compute_gradients", "minimize") or site.qualified(call.func) in GRADIENT_CALLS


def are_exchanged(site: Site, around: ast.AST, names: set[str]) -> bool:
    """Return True if the function exchanges the named gradients between ranks, in a call or in a loop over them."""
    calls = (
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Call) and site.qualified(node.func) in GRADIENT_CALLS[1:]
    )
    loops = [node for node in ast.walk(around) if isinstance(node, ast.ListComp | ast.For)]
    if any(any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(call)) for call in calls):
        return True
    return any(
        any(
            isinstance(child, ast.Call) and site.qualified(child.func) in GRADIENT_CALLS[1:] for child in ast.walk(loop)
        )
        and any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(loop))
        for loop in loops
    )


def is_of_updated_variables(site: Site, applied: ast.Call, variables: ast.expr) -> bool:
    """Return True if the variables of the gradients are those that apply_gradients updates.

    They stand in its arguments, as in zip(grads, tvars), or are all trainable variables or a collection.
    """
    text = ast.unparse(variables)
    if any(ast.unparse(node) == text for node in ast.walk(applied) if isinstance(node, ast.expr)):
        return True
    calls = [node for node in ast.walk(site.values.origin(variables)) if isinstance(node, ast.Call)]
    return any((site.qualified(call.func) or "").endswith(("trainable_variables", "get_collection")) for call in calls)


def use_compute_gradients(site: Site, applied: ast.Call) -> bool:
    """Use compute_gradients of the optimizer that applies them; return False if it is not wrapped by then.

    False as well if compute_gradients does not take the arguments, for a comment in the call, and with `--style
    wrapper`.
    """
    optimizer = applied.func.value  # type: ignore[attr-defined]
    options = [keyword.arg for keyword in site.node.keywords if keyword.arg not in ("ys", "xs")]
    wrapped = isinstance(optimizer, ast.Name) and is_wrapped_before(site, optimizer)
    accepted = len(site.node.args) <= 2 and all(name in NEW_KEYWORDS for name in options)
    commented = site.edit.has_comment(*site.source.span(site.node))
    if not wrapped or not accepted or commented or site.has_unpacked_arguments or site.options.style == "wrapper":
        return False
    loss, variables = site.argument("ys", 0), site.argument("xs", 1)
    given = [keyword for keyword in site.node.keywords if keyword.arg in NEW_KEYWORDS]
    more = "".join(f", {NEW_KEYWORDS[keyword.arg]}={site.text(keyword.value)}" for keyword in given)
    called = f"{site.text(optimizer)}.compute_gradients({site.text(loss)}, {site.text(variables)}{more})"  # type: ignore[arg-type]
    site.edit.node(site.node, f"[grad for grad, _ in {called}]")
    return True


def is_wrapped_before(site: Site, optimizer: ast.Name) -> bool:
    """Return True if this function wraps the optimizer before the site, and nothing else is assigned to it behind."""
    bound = bindings_of(site, optimizer)
    made = [value for value in bound if isinstance(value, ast.Call)]
    wrapped = [call for call in made if site.qualified(call.func) in (*optimizers.WRAPPERS, optimizers.LOSS_SCALE)]
    here = site.source.function(site.node)
    before = [call for call in wrapped if site.source.function(call) is here and call.lineno < site.node.lineno]
    last = max((call.lineno for call in made), default=0)
    return bool(before) and last < site.node.lineno and len(made) == len(bound)
