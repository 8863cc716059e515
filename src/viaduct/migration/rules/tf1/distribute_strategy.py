"""Do without TensorFlow's distribution strategies: here every device is a process.

     import tensorflow as tf
    -strategy = tf.distribute.MirroredStrategy()
    +strategy = None
     run(strategy)

On one device a strategy that is merely passed on becomes None; one whose scope or attributes are used is left to a
person. With `--distributed` it becomes NPUStrategy, which counts the ranks as replicas. A helper that chooses among
strategies (get_distribution_strategy) is only reported: what it returns is no longer used by the run configuration.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._optimizers import loads
from viaduct.migration.rules.tf1._strategies import STRATEGIES

rule = Rule(__name__, spec="V1", kind="mandatory", after=("estimator_run_config",))

HELPER = "get_distribution_strategy"


@rule.call(*STRATEGIES)
def convert(site: Site) -> None:
    parent = site.source.parents[site.node]
    if in_helper(site) or not site.editable or site.edit.has_comment(*site.source.span(site.node)):
        leave(site, "a helper chooses the strategy", "由辅助函数选择分布式策略")
        return
    uses = [site.node]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        uses = list(loads(site, parent.targets[0]))
    if uses and site.options.distributed:
        site.edit.node(site.node, f"{site.need('npu_strategy')}.NPUStrategy()")
        site.changed("the ranks are the replicas: NPUStrategy", zh="改用 NPUStrategy:每个 rank 为一个副本")
    elif all(is_passed_on(site, use) for use in uses):
        site.edit.node(site.node, "None")
        site.changed("no strategy: every device is a process of its own", zh="不使用分布式策略:每个设备对应一个进程")
    else:
        leave(site, "its scope or its attributes are used", "使用了其 scope 或属性")


def in_helper(site: Site) -> bool:
    return any(getattr(parent, "name", "") == HELPER for parent in site.source.ancestors(site.node))


def is_passed_on(site: Site, node: ast.expr) -> bool:
    """An argument, or a question whether there is one."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.keyword):
        parent = site.source.parents[parent]
    if isinstance(parent, ast.Call):
        return node is not parent.func and not uses_attributes(site, parent, node)
    return isinstance(parent, ast.Compare | ast.If | ast.BoolOp | ast.UnaryOp)


def uses_attributes(site: Site, call: ast.Call, value: ast.expr) -> bool:
    """A function of the project that asks more of it than to exist."""
    defined = site.work.project.functions.get(site.qualified(call.func) or "")
    if defined is None:
        return False
    entries = [argument.arg for argument in defined[1].args.args]
    keyword = next((given.arg for given in call.keywords if given.value is value), None)
    parameter = keyword or (entries[call.args.index(value)] if value in call.args[: len(entries)] else "")
    owners = (node.value for node in ast.walk(defined[1]) if isinstance(node, ast.Attribute))
    return any(isinstance(owner, ast.Name) and owner.id == parameter for owner in owners)


def leave(site: Site, why: str, why_zh: str) -> None:
    site.manual(
        f"a distribution strategy ({why}): the accelerator runs one process a device; take it out, or use "
        "npu_strategy.NPUStrategy() in a distributed run",
        zh=f"分布式策略({why_zh}):昇腾上每个设备一个进程;请去掉,或在分布式训练时使用 npu_strategy.NPUStrategy()",
        risk="high",
    )


@rule.node(ast.Call, words=(HELPER,))
def helper(site: Site) -> None:
    name = getattr(site.node.func, "attr", getattr(site.node.func, "id", ""))
    if name == HELPER:
        site.manual(
            "this helper chooses a distribution strategy, which NPURunConfig does not take: its result is not needed",
            zh="该辅助函数返回分布式策略,NPURunConfig 不支持,其结果不再需要",
        )
