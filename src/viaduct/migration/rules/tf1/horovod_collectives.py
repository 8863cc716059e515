"""Exchange tensors through hccl instead of Horovod.

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from hccl.manage.api import get_rank_size
    +from npu_bridge.hccl import hccl_ops
     def mean(value):
    -    return hvd.allreduce(value)
    +    return hccl_ops.allreduce(value, "sum") / get_rank_size()

Horovod averages by default, so the sum is divided by the number of ranks. hccl's allgather wants the same first
dimension on all ranks; its broadcast takes a list and returns one. A reduction that is chosen at run time, or that hccl
does not have (Adasum), needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(__name__, spec="2.8", kind="mandatory")
EXAMPLE_OPTIONS = {"distributed": True}

REDUCTIONS = {"Average": "mean", "Sum": "sum", "Min": "min", "Max": "max", "Product": "prod"}
KNOWN_KEYWORDS = ("tensor", "average", "op", "name", "device_dense", "device_sparse", "compression", "root_rank")


@rule.call("horovod.tensorflow.allreduce")
def replace_allreduce(site: Site) -> None:
    if horovod.keeps_horovod(site):
        return
    tensor, reduction = site.argument("tensor", 0), find_reduction(site)
    if tensor is None or reduction is None or not has_known_keywords(site):
        horovod.report_by_hand(
            site, "hccl_ops.allreduce takes max, min, prod or sum", "hccl_ops.allreduce 支持 max、min、prod、sum"
        )
        return
    mean = reduction == "mean"
    text = f'{site.need("hccl_ops")}.allreduce({site.text(tensor)}, "{"sum" if mean else reduction}")'
    if mean:
        text = f"{text} / {ranks.expression(site, site.node, 'size')}"
        text = f"({text})" if needs_parentheses(site) else text
    replace_collective(
        site, text, f"allreduce ({reduction}) through {NPU.backend}", f"allreduce({reduction})改用 {NPU.backend}"
    )


def find_reduction(site: Site) -> str | None:
    """Return the reduction: mean by default, None if it is decided at run time or is none of REDUCTIONS."""
    op, average = site.keyword("op"), site.argument("average", 1)
    if op is not None and not (isinstance(op.value, ast.Constant) and op.value.value is None):
        return REDUCTIONS.get((site.qualified(op.value) or "").rpartition(".")[2])
    if average is None or (isinstance(average, ast.Constant) and average.value in (True, None)):
        return "mean"
    return "sum" if isinstance(average, ast.Constant) and average.value is False else None


def has_known_keywords(site: Site) -> bool:
    return not site.has_unpacked and all(keyword.arg in KNOWN_KEYWORDS for keyword in site.node.keywords)


def needs_parentheses(site: Site) -> bool:
    """Return True if a division in place of the call needs parentheses."""
    parent = site.source.parents[site.node]
    operator = isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Await)
    return operator or (isinstance(parent, ast.Subscript) and parent.value is site.node)


def replace_collective(site: Site, text: str, message: str, zh: str) -> None:
    if not horovod.replace_call(site, text):
        horovod.report_by_hand(site, f"write {text}", f"请改为 {text}")
        return
    dropped = [
        keyword for keyword in site.node.keywords if keyword.arg not in ("tensor", "average", "op", "root_rank", "name")
    ]
    remainder = ", ".join(site.text(item.value) for item in dropped)
    site.changed(
        message + (f"; dropped: {remainder}" if remainder else ""),
        zh=zh + (f";删除参数:{remainder}" if remainder else ""),
    )


@rule.call("horovod.tensorflow.allgather")
def replace_allgather(site: Site) -> None:
    if horovod.keeps_horovod(site):
        return
    tensor = site.argument("tensor", 0)
    if tensor is None or not has_known_keywords(site):
        horovod.report_by_hand(
            site, "hccl_ops.allgather(tensor, rank_size)", "请使用 hccl_ops.allgather(tensor, rank_size)"
        )
        return
    size = ranks.expression(site, site.node, "size")
    replace_collective(
        site,
        f"{site.need('hccl_ops')}.allgather({site.text(tensor)}, {size})",
        f"allgather through {NPU.backend}",
        f"allgather 改用 {NPU.backend}",
    )
    site.advice(
        f"{NPU.backend}'s allgather requires the same first dimension on every rank",
        zh=f"{NPU.backend} 的 allgather 要求各 rank 第一维大小相同",
        risk="medium",
    )


@rule.call("horovod.tensorflow.broadcast")
def replace_broadcast(site: Site) -> None:
    if horovod.keeps_horovod(site):
        return
    tensor, root = site.argument("tensor", 0), site.argument("root_rank", 1)
    if tensor is None or root is None or not has_known_keywords(site):
        horovod.report_by_hand(
            site, "hccl_ops.broadcast([tensor], root)[0]", "请使用 hccl_ops.broadcast([tensor], root)[0]"
        )
        return
    text = f"{site.need('hccl_ops')}.broadcast([{site.text(tensor)}], {site.text(root)})[0]"
    replace_collective(site, text, f"broadcast through {NPU.backend}", f"broadcast 改用 {NPU.backend}")
