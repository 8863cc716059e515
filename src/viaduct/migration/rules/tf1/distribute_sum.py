"""Sum gradients over all ranks instead of averaging them.

     import tensorflow as tf
    +from npu_bridge.hccl import hccl_ops
     def train(loss, step):
         opt = tf.train.MomentumOptimizer(0.1, 0.9)
    -    return opt.minimize(loss, global_step=step)
    +    grads = [(g if g is None else hccl_ops.allreduce(g, "sum"), v) for g, v in opt.compute_gradients(loss)]
    +    return opt.apply_gradients(grads, global_step=step)

Only with `--distributed --reduction sum`: the vendor's guide adds the gradients of a session script up. The default is
the average, as NPUDistributedOptimizer and Horovod compute it, since then the learning rate means the same with any
number of ranks; a sum is an average with the learning rate multiplied by the number of ranks, and wants one that was
chosen for it. Gradients of `tf.gradients` go through npu_allreduce (distribute_gradients); an optimizer whose calls
cannot be rewritten is wrapped, averages, and is reported (distribute_sum_left).
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers

rule = Rule(
    __name__,
    rules_md_rows="V2",
    kind="mandatory",
    on=lambda options: options.distributed and options.reduction == "sum",
    after=("precision_graph_rewrite",),
)
EXAMPLE_OPTIONS = {"distributed": True, "reduction": "sum"}

ORDER = (
    *("loss", "global_step", "var_list", "gate_gradients", "aggregation_method", "colocate_gradients_with_ops"),
    *("name", "grad_loss"),
)
"""Parameters of minimize, as they may be given by position."""
APPLIED = ("global_step", "name")


@rule.method("minimize")
def split_minimize(site: Site) -> None:
    """Replace `minimize`, which leaves no room for a sum, by compute_gradients, the sum and apply_gradients."""
    statement = site.source.statement(site.node)
    if not is_plain(site) or not is_always_run(site, statement):
        return
    given = dict(zip(ORDER, site.node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in site.node.keywords if keyword.arg}
    if "loss" not in given or site.edit.has_comment(*site.source.span(site.node)):
        return
    optimizer, lines = site.text(site.node.func.value), list[str]()
    if isinstance(site.node.func.value, ast.Call):
        made, optimizer = optimizer, site.free_name("optimizer")
        lines.append(f"{optimizer} = {made}")
    computed = ", ".join(
        site.text(value) if name == "loss" else f"{name}={site.text(value)}"
        for name, value in given.items()
        if name not in APPLIED
    )
    grads = site.free_name("grads")
    lines.append(f"{grads} = {render_sum(site, f'{optimizer}.compute_gradients({computed})')}")
    applied = "".join(f", {name}={site.text(given[name])}" for name in APPLIED if name in given)
    site.edit.insert_before(statement, lines)
    site.edit.node(site.node, f"{optimizer}.apply_gradients({grads}{applied})")
    report_sum(site)


@rule.method("compute_gradients")
def sum_computed(site: Site) -> None:
    if not is_plain(site) or optimizers.is_summed(site, site.node):
        return
    before, after = render_sum(site, "\0").split("\0")
    start, end = site.source.span(site.node)
    site.edit.insert(start, before)
    site.edit.insert(end, after)
    report_sum(site)


def is_always_run(site: Site, statement: ast.stmt) -> bool:
    """Return True if the call is made whenever its statement is reached, so that a line before it changes nothing."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return):
        return False
    conditional = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    within = [node for node in site.source.ancestors(site.node) if isinstance(node, conditional)]
    return not any(node in ast.walk(statement) for node in within)


def is_plain(site: Site) -> bool:
    """Return True for a call on an optimizer that is made in sight and not wrapped, without unpacked arguments."""
    receiver = site.node.func.value
    if (
        site.options.reduction != "sum"
        or site.has_unpacked
        or not site.editable
        or optimizers.is_in_optimizer_class(site)
    ):
        return False
    if isinstance(receiver, ast.Call):
        return optimizers.is_optimizer(site, receiver) and not optimizers.holds_optimizer(site, receiver)
    bound = site.work.names.lookup(receiver.id, site.work.names.scope_of(receiver)) if is_name(receiver) else None
    return bool(bound) and all(
        isinstance(value, ast.Call)
        and optimizers.is_optimizer(site, value)
        and not optimizers.holds_optimizer(site, value)
        for value in bound or ()
    )


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def render_sum(site: Site, pairs: str) -> str:
    operators = site.need("hccl_ops")
    return f'[(g if g is None else {operators}.allreduce(g, "sum"), v) for g, v in {pairs}]'


def report_sum(site: Site) -> None:
    site.changed(
        "gradients are added up over all ranks, as asked for: the learning rate must suit the number of ranks",
        zh="按要求对各 rank 的梯度求和(而非平均):学习率须与 rank 数匹配",
        risk="medium",
    )
