"""Average gradients that are computed by hand.

     import tensorflow as tf
     from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer
     def train(loss):
         opt = tf.train.AdamOptimizer(0.001)
         opt = NPUDistributedOptimizer(opt)
         tvars = tf.trainable_variables()
    -    grads = tf.gradients(loss, tvars)
    +    grads = [grad for grad, _ in opt.compute_gradients(loss, tvars)]
         return opt.apply_gradients(zip(grads, tvars))

Only with `--distributed`, and for gradients that reach apply_gradients together with their variables: penalties and
saliency maps are nobody else's business. tf.gradients knows of no other rank; the wrapped optimizer averages, and gives
None where there is no gradient, as before. Where the optimizer is made later, or in `--style wrapper`, the gradients go
through npu_allreduce; with `--reduction sum` always, as `npu_allreduce(…, "sum")`.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import OPERATORS
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers

rule = Rule(
    __name__, spec="V3", kind="mandatory", on=lambda options: options.distributed, after=("distribute_optimizer",)
)
EXAMPLE_OPTIONS = {"distributed": True}

WORDS = {
    "grad_ys": "grad_loss",
    "aggregation_method": "aggregation_method",
    "colocate_gradients_with_ops": "colocate_gradients_with_ops",
}
REDUCED = (f"{optimizers.OPTIMIZERS}.npu_allreduce", f"{optimizers.OPTIMIZERS}.allreduce")
AGAIN = ("tensorflow.gradients", f"{OPERATORS}.allreduce", *REDUCED)


@rule.call("tensorflow.gradients")
def average(site: Site) -> None:
    if is_reduced(site) or not site.editable:
        return
    applied = where_applied(site)
    if applied is None:
        return
    variables = site.argument("xs", 1)
    if variables is None or not goes_with(site, applied, variables):
        site.manual(
            "if these are the gradients of the training loss, average them: opt.compute_gradients of the wrapped "
            "optimizer, or npu_allreduce",
            zh="若此处为训练 loss 的梯度,请在各 rank 间聚合:使用包装后优化器的 compute_gradients,或 npu_allreduce",
            risk="high",
        )
        return
    if site.options.reduction == "sum":
        reduce_here(site, ', "sum"')
        site.changed(
            "gradients are added up over all ranks, as asked for: the learning rate must suit the number of ranks",
            zh="按要求对各 rank 的梯度求和(而非平均):学习率须与 rank 数匹配",
            risk="medium",
        )
        return
    if not by_optimizer(site, applied):
        reduce_here(site)
    site.changed("gradients are averaged over all ranks", zh="梯度在各 rank 间聚合")


def reduce_here(site: Site, more: str = "") -> None:
    start, end = site.source.span(site.node)
    site.edit.insert(start, f"{site.need('npu_allreduce')}(")
    site.edit.insert(end, f"{more})")


def is_reduced(site: Site) -> bool:
    calls = (parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call))
    return any(site.qualified(call.func) in REDUCED for call in calls)


def where_applied(site: Site) -> ast.Call | None:
    """The apply_gradients that these gradients reach, through whatever clips them on the way."""
    around = site.source.function(site.node) or site.source.tree
    statement, reached = site.source.statement(site.node), set[str]()
    if not isinstance(statement, ast.Assign):
        return next((call for call in applications(statement) if site.node in ast.walk(call)), None)
    reached |= targets(statement)
    summed = is_summed(site, around, reached)
    for later in sorted(statements(around), key=lambda node: (node.lineno, node.col_offset)):
        if later.lineno < statement.lineno or later is statement:
            continue
        for call in applications(later):
            if any(mentions(site, argument, reached) for argument in [*call.args, *call.keywords]):
                return None if summed else call
        if isinstance(later, ast.Assign) and mentions(site, later.value, reached):
            reached |= targets(later)
    return None


def statements(around: ast.AST) -> list[ast.stmt]:
    simple = ast.Assign | ast.Expr | ast.Return | ast.AugAssign | ast.AnnAssign
    return [node for node in ast.walk(around) if isinstance(node, simple)]


def applications(statement: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "apply_gradients"]


def targets(statement: ast.Assign) -> set[str]:
    stored = (node for target in statement.targets for node in ast.walk(target))
    return {node.id for node in stored if isinstance(node, ast.Name) and node.id != "_"}


def mentions(site: Site, node: ast.AST, names: set[str]) -> bool:
    """Not within what computes gradients anew: a loss with a penalty on gradients is a loss."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Name) and item.id in names:
            return True
        if not (isinstance(item, ast.Call) and computes_anew(site, item)):
            pending += ast.iter_child_nodes(item)
    return False


def computes_anew(site: Site, call: ast.Call) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method in ("compute_gradients", "minimize") or site.qualified(call.func) in AGAIN


def is_summed(site: Site, around: ast.AST, names: set[str]) -> bool:
    """Somebody exchanges them already."""
    calls = (node for node in ast.walk(around) if isinstance(node, ast.Call) and site.qualified(node.func) in AGAIN[1:])
    loops = [node for node in ast.walk(around) if isinstance(node, ast.ListComp | ast.For)]
    if any(any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(call)) for call in calls):
        return True
    return any(
        any(isinstance(child, ast.Call) and site.qualified(child.func) in AGAIN[1:] for child in ast.walk(loop))
        and any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(loop))
        for loop in loops
    )


def goes_with(site: Site, applied: ast.Call, variables: ast.expr) -> bool:
    """Return True if what is differentiated by is what is updated: zip(grads, tvars), or all trainable variables."""
    text = ast.unparse(variables)
    if any(ast.unparse(node) == text for node in ast.walk(applied) if isinstance(node, ast.expr)):
        return True
    made = [node for node in ast.walk(site.values.origin(variables)) if isinstance(node, ast.Call)]
    return any((site.qualified(call.func) or "").endswith(("trainable_variables", "get_collection")) for call in made)


def by_optimizer(site: Site, applied: ast.Call) -> bool:
    """Use compute_gradients of the optimizer that applies them, if it is wrapped by then and takes the arguments."""
    optimizer = applied.func.value  # type: ignore[attr-defined]
    words = [keyword.arg for keyword in site.node.keywords if keyword.arg not in ("ys", "xs")]
    named = isinstance(optimizer, ast.Name) and is_wrapped_before(site, optimizer)
    plain = len(site.node.args) <= 2 and all(text in WORDS for text in words)
    commented = site.edit.has_comment(*site.source.span(site.node))
    if not named or not plain or commented or site.has_unpacked or site.options.style == "wrapper":
        return False
    loss, variables = site.argument("ys", 0), site.argument("xs", 1)
    more = "".join(f", {WORDS[w.arg]}={site.text(w.value)}" for w in site.node.keywords if w.arg in WORDS)
    called = f"{site.text(optimizer)}.compute_gradients({site.text(loss)}, {site.text(variables)}{more})"  # type: ignore[arg-type]
    site.edit.node(site.node, f"[grad for grad, _ in {called}]")
    return True


def is_wrapped_before(site: Site, optimizer: ast.Name) -> bool:
    bound = site.work.names.lookup(optimizer.id, site.work.names.scope_of(optimizer)) or []
    made = [value for value in bound if isinstance(value, ast.Call)]
    wrapped = [call for call in made if site.qualified(call.func) in (*optimizers.WRAPPERS, optimizers.LOSS_SCALE)]
    here = site.source.function(site.node)
    before = [call for call in wrapped if site.source.function(call) is here and call.lineno < site.node.lineno]
    last = max((call.lineno for call in made), default=0)
    return bool(before) and last < site.node.lineno and len(made) == len(bound)
