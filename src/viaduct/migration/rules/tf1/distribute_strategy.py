"""Remove TensorFlow's distribution strategies: on the NPU every device has its own process.

     import tensorflow as tf
    -strategy = tf.distribute.MirroredStrategy()
    +strategy = None
     run(strategy)

Without `--distributed` a strategy that is only tested or passed on becomes None; a strategy with other uses needs
manual review. With `--distributed` a strategy that is used becomes NPUStrategy, whose replicas are the ranks. A call of
get_distribution_strategy is only reported: the run configuration no longer uses its result.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import find_reads, last_name, plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._optimizers import find_receiving_parameter
from viaduct.migration.rules.tf1._strategies import STRATEGIES

rule = Rule(
    __name__,
    target_needs="communication",
    spec_rows=("V1",),
    after=("estimator_run_config",),  # which removes arguments with strategies
)

STRATEGY_HELPER = "get_distribution_strategy"  # of TensorFlow's official models


@rule.call(*STRATEGIES)
def replace_strategy(site: Site) -> None:
    """Replace a strategy by NPUStrategy or None, or report it."""
    parent = site.source.parents[site.node]
    if any(getattr(ancestor, "name", "") == STRATEGY_HELPER for ancestor in site.source.ancestors(site.node)):
        report_strategy(site, "a helper chooses the strategy", "由辅助函数选择分布式策略")
        return
    if not site.is_editable or site.edit.has_comment(*site.source.span(site.node)):
        report_strategy(site, "the call has a comment or is in an f-string", "调用中有注释或位于 f-string 中")
        return
    uses = [site.node]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        uses = list(find_reads(site, parent.targets[0]))
    if uses and site.options.distributed:
        site.edit.replace_node(site.node, f"{site.import_npu_name('npu_strategy')}.NPUStrategy()")
        site.report_change("the ranks are the replicas: NPUStrategy", zh="改用 NPUStrategy:每个 rank 为一个副本")
    elif all(is_only_passed_on(site, use) for use in uses):
        site.edit.replace_node(site.node, "None")
        site.report_change("no strategy: every device has its own process", zh="不使用分布式策略:每个设备对应一个进程")
    else:
        report_strategy(site, "it is used for more than tests and arguments", "除判断与传参外另有用途")


def is_only_passed_on(site: Site, node: ast.expr) -> bool:
    """Return True for a test, and for an argument of a function that is not known to use its attributes."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.keyword):
        parent = site.source.parents[parent]
    if isinstance(parent, ast.Call):
        return node is not parent.func and not uses_attributes(site, parent, node)
    return isinstance(parent, ast.Compare | ast.If | ast.BoolOp | ast.UnaryOp)


def uses_attributes(site: Site, call: ast.Call, value: ast.expr) -> bool:
    """Return True if the called function of the project uses attributes of the value."""
    receiver = find_receiving_parameter(site, call, value)
    if receiver is None:
        return False
    function, parameter = receiver
    return any(isinstance(node, ast.Attribute) and plain_name(node.value) == parameter for node in ast.walk(function))


def report_strategy(site: Site, reason: str, reason_zh: str) -> None:
    site.request_review(
        f"a distribution strategy ({reason}): the accelerator runs one process per device; remove it, or use "
        "npu_strategy.NPUStrategy() in a distributed run",
        zh=f"分布式策略({reason_zh}):昇腾上每个设备一个进程;请去掉,或在分布式训练时使用 npu_strategy.NPUStrategy()",
        risk="high",
    )


@rule.node(ast.Call, only_if_file_contains=(STRATEGY_HELPER,))
def report_helper(site: Site) -> None:
    if last_name(site.node.func) == STRATEGY_HELPER:
        site.request_review(
            "this helper chooses a distribution strategy, which the run configuration no longer uses: remove the call "
            "if nothing else does",
            zh="该辅助函数选择分布式策略,运行配置已不再使用:若无其他用途,请删除该调用",
        )
