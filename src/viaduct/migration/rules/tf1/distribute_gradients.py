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

The rule edits gradients that reach apply_gradients, if they are passed with their variables, or were computed for all
trainable variables or a collection. Penalties and saliency maps stay. If the file does not show that the gradients
belong to the updated variables, they need manual review. With `--style wrapper`, or if the optimizer is not wrapped
before, npu_allreduce averages the gradients; with `--reduction sum` it is always used, as `npu_allreduce(…, "sum")`.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import HCCL_OPERATORS
from viaduct.migration.lookups import bindings_of, contains_call, is_within_call, method_name
from viaduct.migration.options import is_distributed
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers

# After distribute_optimizer, which wraps the optimizer whose compute_gradients is called.
rule = Rule(
    __name__, target_needs="optimizers", spec_rows=("V3",), when=is_distributed, after=("distribute_optimizer",)
)

NEW_KEYWORDS = {  # keyword of tf.gradients -> keyword of compute_gradients
    "grad_ys": "grad_loss",
    "aggregation_method": "aggregation_method",
    "colocate_gradients_with_ops": "colocate_gradients_with_ops",
}
EXCHANGING_CALLS = (
    f"{optimizers.OPTIMIZER_MODULE}.npu_allreduce",
    f"{optimizers.OPTIMIZER_MODULE}.allreduce",
    f"{HCCL_OPERATORS}.allreduce",
)


@rule.call("tensorflow.gradients")
def average_gradients(site: Site) -> None:
    if is_within_call(site, site.node, EXCHANGING_CALLS) or not site.is_editable:
        return
    apply_call = find_apply_call(site)
    if apply_call is None:
        return
    variables = site.argument("xs", 1)
    if variables is None or not is_for_updated_variables(site, apply_call, variables):
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
    if not use_compute_gradients(site, apply_call):
        add_allreduce(site)
    site.report_change("gradients are averaged over all ranks", zh="梯度在各 rank 间求平均")


def add_allreduce(site: Site, arguments: str = "") -> None:
    """Pass the gradients through npu_allreduce, with further arguments such as `, "sum"`."""
    site.edit.enclose(site.node, f"{site.import_npu_name('npu_allreduce')}(", f"{arguments})")


def find_apply_call(site: Site) -> ast.Call | None:
    """Return the call of apply_gradients that these gradients reach, directly or through clipping and the like.

    None if there is no such call, or if the gradients go through an allreduce before.
    """
    function = site.source.function_around(site.node) or site.source.tree
    statement = site.source.statement_around(site.node)
    if not isinstance(statement, ast.Assign):
        return next((call for call in find_apply_calls(statement) if site.node in ast.walk(call)), None)
    names = get_assigned_names(statement)  # variables with the gradients, or with values computed from them
    is_exchanged = are_exchanged(site, function, names)
    simple = ast.Assign | ast.Expr | ast.Return | ast.AugAssign | ast.AnnAssign
    statements = [node for node in ast.walk(function) if isinstance(node, simple)]
    for later in sorted(statements, key=lambda node: (node.lineno, node.col_offset)):
        if later.lineno < statement.lineno or later is statement:
            continue
        for call in find_apply_calls(later):
            if any(reads_any(site, argument, names) for argument in [*call.args, *call.keywords]):
                return None if is_exchanged else call
        if isinstance(later, ast.Assign) and reads_any(site, later.value, names):
            names |= get_assigned_names(later)
    return None


def find_apply_calls(statement: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if method_name(call) == "apply_gradients"]


def get_assigned_names(statement: ast.Assign) -> set[str]:
    stored = (node for target in statement.targets for node in ast.walk(target))
    return {node.id for node in stored if isinstance(node, ast.Name) and node.id != "_"}


def reads_any(site: Site, node: ast.AST, names: set[str]) -> bool:
    """Return True if a node reads one of the names outside calls that compute gradients or exchange them."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Name) and item.id in names:
            return True
        if not (isinstance(item, ast.Call) and computes_or_exchanges(site, item)):
            pending += ast.iter_child_nodes(item)
    return False


def computes_or_exchanges(site: Site, call: ast.Call) -> bool:
    """Return True for a call that computes gradients or exchanges them between ranks."""
    if method_name(call) in ("compute_gradients", "minimize"):
        return True
    return site.qualified_name(call.func) in ("tensorflow.gradients", *EXCHANGING_CALLS)


def are_exchanged(site: Site, function: ast.AST, names: set[str]) -> bool:
    """Return True if the function exchanges the named gradients between ranks, in a call or in a loop over them."""
    exchanges = [
        node
        for node in ast.walk(function)
        if (isinstance(node, ast.ListComp | ast.For) and contains_call(site, node, EXCHANGING_CALLS))
        or (isinstance(node, ast.Call) and site.qualified_name(node.func) in EXCHANGING_CALLS)
    ]
    return any(isinstance(inner, ast.Name) and inner.id in names for node in exchanges for inner in ast.walk(node))


def is_for_updated_variables(site: Site, apply_call: ast.Call, variables: ast.expr) -> bool:
    """Return True if the gradients belong to the variables that apply_gradients updates.

    The variables are in its arguments, as in zip(grads, tvars), or are all trainable variables or a collection.
    """
    text = ast.unparse(variables)
    if any(ast.unparse(node) == text for node in ast.walk(apply_call) if isinstance(node, ast.expr)):
        return True
    calls = [node for node in ast.walk(site.values.assigned_value(variables)) if isinstance(node, ast.Call)]
    return any(
        (site.qualified_name(call.func) or "").endswith(("trainable_variables", "get_collection")) for call in calls
    )


def use_compute_gradients(site: Site, apply_call: ast.Call) -> bool:
    """Replace tf.gradients by compute_gradients of the wrapped optimizer; return False if that is not possible."""
    optimizer = apply_call.func.value  # type: ignore[attr-defined]
    options = [keyword.arg for keyword in site.node.keywords if keyword.arg not in ("ys", "xs")]
    is_wrapped = isinstance(optimizer, ast.Name) and is_wrapped_before(site, optimizer)
    is_accepted = len(site.node.args) <= 2 and all(name in NEW_KEYWORDS for name in options)
    has_comment = site.edit.has_comment(*site.source.span(site.node))
    if (
        not is_wrapped
        or not is_accepted
        or has_comment
        or site.has_unpacked_arguments
        or site.options.style == "wrapper"
    ):
        return False
    loss, variables = site.argument("ys", 0), site.argument("xs", 1)
    keywords = [keyword for keyword in site.node.keywords if keyword.arg in NEW_KEYWORDS]
    added = "".join(f", {NEW_KEYWORDS[keyword.arg]}={site.text_of(keyword.value)}" for keyword in keywords)
    call = f"{site.text_of(optimizer)}.compute_gradients({site.text_of(loss)}, {site.text_of(variables)}{added})"  # type: ignore[arg-type]
    site.edit.replace_node(site.node, f"[grad for grad, _ in {call}]")
    return True


def is_wrapped_before(site: Site, optimizer: ast.Name) -> bool:
    """Return True if this function wraps the optimizer before the site and assigns nothing to it after the site."""
    bindings = bindings_of(site, optimizer)
    calls = [value for value in bindings if isinstance(value, ast.Call)]
    wrapping = [
        call for call in calls if site.qualified_name(call.func) in (*optimizers.WRAPPERS, optimizers.LOSS_SCALE)
    ]
    function = site.source.function_around(site.node)
    before = [
        call for call in wrapping if site.source.function_around(call) is function and call.lineno < site.node.lineno
    ]
    last_line = max((call.lineno for call in calls), default=0)
    return bool(before) and last_line < site.node.lineno and len(calls) == len(bindings)
