"""Sum gradients over all ranks instead of averaging them.

With `--distributed --reduction sum`:

     import tensorflow as tf
    +from npu_bridge.hccl import hccl_ops
     def train(loss, step):
         opt = tf.train.MomentumOptimizer(0.1, 0.9)
    -    return opt.minimize(loss, global_step=step)
    +    grads = [(g if g is None else hccl_ops.allreduce(g, "sum"), v) for g, v in opt.compute_gradients(loss)]
    +    return opt.apply_gradients(grads, global_step=step)

Ascend's guide sums gradients in scripts with sessions. The default of the migration is the average, as in
NPUDistributedOptimizer and Horovod, for which the learning rate does not depend on the number of ranks.
distribute_gradients handles `tf.gradients`. An optimizer whose calls cannot be rewritten is wrapped, so that it
averages, and distribute_sum_left reports it.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import bindings_of
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _optimizers as optimizers

# After precision_graph_rewrite, which unwraps optimizers.
rule = Rule(
    __name__,
    target_needs="optimizers",
    spec_rows=("V2",),
    when=lambda options: options.distributed and options.reduction == "sum",
    after=("precision_graph_rewrite",),
)

MINIMIZE_PARAMETERS = (  # in order
    "loss", "global_step", "var_list", "gate_gradients", "aggregation_method", "colocate_gradients_with_ops",
    "name", "grad_loss",
)  # fmt: skip
APPLY_PARAMETERS = ("global_step", "name")  # parameters of minimize that apply_gradients has too


@rule.method("minimize")
def split_minimize(site: Site) -> None:
    """Replace `minimize` by compute_gradients, the sum and apply_gradients."""
    statement = site.source.statement_around(site.node)
    if not can_be_summed(site) or not is_always_run(site, statement):
        return
    arguments = dict(zip(MINIMIZE_PARAMETERS, site.node.args, strict=False))
    arguments |= {keyword.arg: keyword.value for keyword in site.node.keywords if keyword.arg}
    if "loss" not in arguments or site.edit.has_comment(*site.source.span(site.node)):
        return
    lines: list[str] = []
    optimizer = site.text_of(site.node.func.value)
    if isinstance(site.node.func.value, ast.Call):
        variable = site.reserve_name("optimizer")
        lines.append(f"{variable} = {optimizer}")
        optimizer = variable
    compute_arguments = ", ".join(
        site.text_of(value) if name == "loss" else f"{name}={site.text_of(value)}"
        for name, value in arguments.items()
        if name not in APPLY_PARAMETERS
    )
    grads = site.reserve_name("grads")
    lines.append(f"{grads} = {render_sum(site, f'{optimizer}.compute_gradients({compute_arguments})')}")
    apply_arguments = "".join(
        f", {name}={site.text_of(arguments[name])}" for name in APPLY_PARAMETERS if name in arguments
    )
    site.edit.insert_before(statement, lines)
    site.edit.replace_node(site.node, f"{optimizer}.apply_gradients({grads}{apply_arguments})")
    optimizers.report_sum(site)


@rule.method("compute_gradients")
def sum_gradients(site: Site) -> None:
    if not can_be_summed(site) or optimizers.is_summed_by_allreduce(site, site.node):
        return
    before, after = render_sum(site, "\0").split("\0")  # the code before and after the call
    site.edit.enclose(site.node, before, after)
    optimizers.report_sum(site)


def is_always_run(site: Site, statement: ast.stmt) -> bool:
    """Return True if every run of the statement runs the call, so that part of it may move to a line before."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return):
        return False
    conditional = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    parents = [node for node in site.source.ancestors(site.node) if isinstance(node, conditional)]
    return not any(node in ast.walk(statement) for node in parents)


def can_be_summed(site: Site) -> bool:
    """Return True for a call without unpacked arguments on an optimizer that this file creates and does not wrap."""
    receiver = site.node.func.value
    if (
        site.options.reduction != "sum"
        or site.has_unpacked_arguments
        or not site.is_editable
        or optimizers.is_in_optimizer_class(site)
    ):
        return False
    values = bindings_of(site, receiver) if isinstance(receiver, ast.Name) else [receiver]
    return bool(values) and all(
        isinstance(value, ast.Call)
        and optimizers.is_optimizer(site, value)
        and not optimizers.has_optimizer_argument(site, value)
        for value in values
    )


def render_sum(site: Site, pairs: str) -> str:
    """Return the code of a list with the gradients summed, for the code of a list of (gradient, variable) pairs."""
    operators = site.import_npu_name("hccl_ops")
    return f'[(g if g is None else {operators}.allreduce(g, "sum"), v) for g, v in {pairs}]'
