"""Shard a dataset by the NPU's ranks.

With `--distributed`:

     import tensorflow as tf
    +from hccl.manage.api import get_rank_id
    +from hccl.manage.api import get_rank_size
     def input_fn(input_context):
         ds = tf.data.TFRecordDataset(files)
    -    return ds.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    +    return ds.shard(get_rank_size(), get_rank_id())

The rule replaces a number of shards and an index that come from a strategy, a TPU's context, TF_CONFIG or Horovod. The
new ones come from hccl, or from RANK_SIZE and RANK_ID with `--rank env` and in code that runs before main. Without
`--distributed` the rule only advises. Literal numbers and ranks stay. A condition on the input context, which only a
strategy passes, becomes one on the number of ranks. Numbers of any other origin, and shards of objects that may be no
datasets, need manual review.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import argument_values, mark_once, plain_name
from viaduct.migration.predicates import is_literal, is_literal_in, is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks
from viaduct.migration.source import FunctionNode

rule = Rule(__name__, target_needs="shards", spec_rows=("D5",), after=("horovod_lifecycle", "session_config"))

STRATEGY_ATTRIBUTES = (
    {"num_input_pipelines", "input_pipeline_id"}  # tf.distribute.InputContext
    | {"num_replicas_in_sync", "replica_id_in_sync_group"}  # a strategy and its replica context
    | {"num_worker_replicas", "global_id_in_cluster", "task_id"}  # RunConfig, from TF_CONFIG
    | {"num_hosts", "current_host"}  # a TPU's context
)


@rule.method("shard")
def shard_by_rank(site: Site) -> None:
    """Rewrite a shard by a strategy's numbers; report a shard by numbers of unknown origin."""
    kind = site.values.kind(site.node.func.value)
    if kind != "dataset":
        if kind is None and not site.values.is_from_other_library(site.node.func.value):
            report_possible_shard(site)
        return
    number, index = site.argument("num_shards", 0), site.argument("index", 1)
    if number is None or index is None or (is_literal(number) and is_literal(index)):
        return
    if ranks.is_rank_call(site, number) or ranks.is_rank_call(site, index):
        return
    if horovod.keeps_horovod(site) and horovod.calls_any(
        site, site.values.assigned_value(number), "size", "local_size"
    ):
        return  # this program keeps Horovod
    if not (is_from_strategy(site, number) and is_from_strategy(site, index)):
        report_unknown_numbers(site)
    elif not site.options.distributed:
        site.advise(
            "on several devices shard by rank: see --distributed", zh="多设备训练时应按 rank 切分:参见 --distributed"
        )
    else:
        rewrite_shard(site, number, index)


def report_possible_shard(site: Site) -> None:
    """Report a shard by a strategy's numbers on an object that may be no dataset."""
    number, index = site.argument("num_shards", 0), site.argument("index", 1)
    if number is None or index is None or not (is_from_strategy(site, number) and is_from_strategy(site, index)):
        return
    site.request_review(
        "this looks like a dataset's shard by the numbers of a distribution strategy, which is removed: shard by "
        "get_rank_size() and get_rank_id()",
        zh="此处似为按分布式策略切分数据集:应改为 get_rank_size() 与 get_rank_id()",
        risk="high" if site.options.distributed else "medium",
    )


def is_from_strategy(site: Site, node: ast.expr) -> bool:
    """Return True for a number from an input context, a strategy, a RunConfig, TF_CONFIG, a TPU or replaced Horovod."""
    for inner in ast.walk(site.values.assigned_value(node)):
        if isinstance(inner, ast.Attribute) and inner.attr in STRATEGY_ATTRIBUTES:
            return True
        if isinstance(inner, ast.Call) and horovod.is_horovod(site.qualified_name(inner.func)):
            return not horovod.keeps_horovod(site)
        is_name = isinstance(inner, ast.Name) and inner is not node
        if is_name and any(is_literal_in(part, "TF_CONFIG") for part in ast.walk(site.values.assigned_value(inner))):
            return True
    return False


def rewrite_shard(site: Site, number: ast.expr, index: ast.expr) -> None:
    """Replace the number of shards, the index, and the conditions on the input context around them."""
    if not site.is_editable:
        report_unknown_numbers(site)
        return
    size, rank = (ranks.render_rank_quantity(site, site.node, quantity) or "" for quantity in ("size", "rank"))
    site.edit.replace_node(number, size)
    site.edit.replace_node(index, rank)
    site.report_change("every rank reads its share", zh="按 rank 切分数据集")
    for test, block in find_conditions(site):
        if mark_once(site, "condition", test):
            replace_condition(site, test, block, size, rank)


def find_conditions(site: Site) -> Iterator[tuple[ast.expr, list[ast.AST]]]:
    """Yield the conditions on an input context that guard the shard, each with the nodes in its branches."""
    child: ast.AST = site.node
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, FunctionNode):
            yield from find_early_returns(site, parent)
            return
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test and mentions_context(site, parent.test):
            yield parent.test, [child] if isinstance(parent, ast.IfExp) else [*parent.body, *parent.orelse]
        child = parent


def find_early_returns(site: Site, function: ast.AST) -> Iterator[tuple[ast.expr, list[ast.AST]]]:
    """Yield the conditions of `if not input_context: return dataset` before the shard."""
    for statement in getattr(function, "body", []):
        if not isinstance(statement, ast.If) or statement.lineno >= site.node.lineno:
            continue
        returns = isinstance(statement.body[-1], ast.Return) and not site.source.is_within(site.node, [statement])
        if returns and mentions_context(site, statement.test):
            yield statement.test, []


def mentions_context(site: Site, test: ast.expr) -> bool:
    """Return True if a condition reads a name that the shard's arguments use, or one with "context" in it."""
    used = {node.id for value in argument_values(site.node) for node in ast.walk(value) if isinstance(node, ast.Name)}
    tested = (node.id for node in ast.walk(test) if isinstance(node, ast.Name))
    return any(name in used or "context" in name for name in tested)


def replace_condition(site: Site, test: ast.expr, block: list[ast.AST], size: str, rank: str) -> None:
    """Replace `if input_context:`, which only a strategy passes, by a condition on the number of ranks.

    `block` holds the nodes in its branches. If they use the context for more than the shard's numbers, report it.
    """
    name, tests_presence = get_tested_name(test)
    reads = [node for branch in block for node in ast.walk(branch) if isinstance(node, ast.Name)]
    parents = [site.source.parents[node] for node in reads if node.id == name]
    replacements = {"num_input_pipelines": size, "input_pipeline_id": rank}
    if not name or not all(isinstance(parent, ast.Attribute) and parent.attr in replacements for parent in parents):
        text = ast.unparse(test)
        site.request_review(
            f"this shard depends on `if {text}`, and without a strategy that value may be missing: make sure that "
            "the shard is reached",
            zh=f"该 shard 受 `if {text}` 控制:没有分布式策略时可能没有该值,请确保能执行到此处",
            risk="high",
            node=test,
        )
        return
    site.edit.replace_node(test, f"{size} > 1" if tests_presence else f"{size} <= 1")
    for parent in parents:
        if isinstance(parent, ast.Attribute) and not site.source.is_within(parent, [site.node]):
            site.edit.replace_node(parent, replacements[parent.attr])
    site.report_change(
        f"without a strategy {name} may be missing: the condition now tests the number of ranks",
        zh=f"没有分布式策略时可能没有 {name}:条件改为按 rank 数量判断",
        node=test,
    )


def get_tested_name(test: ast.expr) -> tuple[str, bool]:
    """Return the tested name, and True for the tests `c`, `c is not None`, False for `not c`, `c is None`.

    The name is "" for any other test.
    """
    if isinstance(test, ast.Name):
        return test.id, True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Name):
        return test.operand.id, False
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not is_none(test.comparators[0]):
        return "", False
    is_identity = isinstance(test.ops[0], ast.Is | ast.IsNot)
    return plain_name(test.left) if is_identity else "", isinstance(test.ops[0], ast.IsNot)


def report_unknown_numbers(site: Site) -> None:
    if site.options.distributed:
        site.request_review(
            "the file does not show where the number and the index of this shard come from: they should be the number "
            "of ranks and the rank",
            zh="无法确定此处 shard 的数量与序号来源:应分别为 rank size 与 rank id",
        )
