"""Replace Horovod's collective operations by operations of hccl, the NPU's library of collectives.

With `--distributed`:

     import horovod.tensorflow as hvd
     import tensorflow as tf
    +from hccl.manage.api import get_rank_size
    +from npu_bridge.hccl import hccl_ops
     def mean(value):
    -    return hvd.allreduce(value)
    +    return hccl_ops.allreduce(value, "sum") / get_rank_size()

Horovod averages by default, so the sum is divided by the number of ranks. hccl's allgather requires the same first
dimension on all ranks; its broadcast takes and returns a list. A reduction that is chosen at run time, or that hccl
does not have (Adasum), needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.lookups import keyword_value
from viaduct.migration.predicates import is_constant, is_literal_in, is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _ranks as ranks

rule = Rule(__name__, target_needs="communication", spec_rows=("2.8",))

MODULES = ("horovod.tensorflow",)  # the functions of Horovod for Keras have other arguments
REDUCTIONS = {"Average": "mean", "Sum": "sum", "Min": "min", "Max": "max", "Product": "prod"}
# Arguments that the finding does not call dropped: all but `name` are reproduced.
UNREPORTED_KEYWORDS = ("tensor", "average", "op", "root_rank", "name")
KNOWN_KEYWORDS = (*UNREPORTED_KEYWORDS, "device_dense", "device_sparse", "compression")


@horovod.register_call(rule, "allreduce", modules=MODULES)
def replace_allreduce(site: Site) -> None:
    """Replace allreduce by hccl's, and a mean by the sum divided by the number of ranks."""
    tensor, reduction = site.argument("tensor", 0), find_reduction(site)
    if tensor is None or reduction is None or not has_known_arguments(site):
        horovod.request_manual_change(
            site, "hccl_ops.allreduce takes max, min, prod or sum", "hccl_ops.allreduce 支持 max、min、prod、sum"
        )
        return
    is_mean = reduction == "mean"
    text = f'{site.import_npu_name("hccl_ops")}.allreduce({site.text_of(tensor)}, "{"sum" if is_mean else reduction}")'
    if is_mean:
        text = f"{text} / {ranks.render_rank_quantity(site, site.node, 'size')}"
        text = f"({text})" if needs_parentheses(site) else text
    replace_collective(
        site, text, f"allreduce ({reduction}) through {NPU.backend}", f"allreduce({reduction})改用 {NPU.backend}"
    )


def find_reduction(site: Site) -> str | None:
    """Return the reduction; None if it is decided at run time or is not in REDUCTIONS."""
    op, average = keyword_value(site.node, "op"), site.argument("average", 1)
    if op is not None and not is_none(op):
        return REDUCTIONS.get((site.qualified_name(op) or "").rpartition(".")[2])
    if average is None or is_literal_in(average, True, None):
        return "mean"
    return "sum" if is_constant(average, False) else None


def has_known_arguments(site: Site) -> bool:
    """Return True for a call with known keywords and at most two positional arguments, such as tensor and average."""
    are_known = all(keyword.arg in KNOWN_KEYWORDS for keyword in site.node.keywords)
    return are_known and not site.has_unpacked_arguments and len(site.node.args) <= 2


def needs_parentheses(site: Site) -> bool:
    """Return True if a division that replaces the call needs parentheses."""
    parent = site.source.parents[site.node]
    binds_tighter = isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Await)
    return binds_tighter or (isinstance(parent, ast.Subscript) and parent.value is site.node)


def replace_collective(site: Site, text: str, message: str, zh: str) -> None:
    """Replace the call by a text, or report it for manual review; the finding lists the dropped arguments."""
    keywords = [keyword for keyword in site.node.keywords if keyword.arg not in UNREPORTED_KEYWORDS]
    dropped = ", ".join(site.text_of(keyword.value) for keyword in keywords)
    message, zh = (f"{message}; dropped: {dropped}", f"{zh};删除参数:{dropped}") if dropped else (message, zh)
    horovod.replace_or_report(site, text, message, zh)


@horovod.register_call(rule, "allgather", modules=MODULES)
def replace_allgather(site: Site) -> None:
    """Replace allgather by hccl's, and advise on the shapes that it requires."""
    tensor = site.argument("tensor", 0)
    if tensor is None or not has_known_arguments(site):
        horovod.request_manual_change(
            site, "write hccl_ops.allgather(tensor, rank_size)", "请使用 hccl_ops.allgather(tensor, rank_size)"
        )
        return
    size = ranks.render_rank_quantity(site, site.node, "size")
    replace_collective(
        site,
        f"{site.import_npu_name('hccl_ops')}.allgather({site.text_of(tensor)}, {size})",
        f"allgather through {NPU.backend}",
        f"allgather 改用 {NPU.backend}",
    )
    site.advise(
        f"{NPU.backend}'s allgather requires the same first dimension on every rank",
        zh=f"{NPU.backend} 的 allgather 要求各 rank 第一维大小相同",
        risk="medium",
    )


@horovod.register_call(rule, "broadcast", modules=MODULES)
def replace_broadcast(site: Site) -> None:
    """Replace broadcast by hccl's, which takes and returns a list."""
    tensor, root = site.argument("tensor", 0), site.argument("root_rank", 1)
    if tensor is None or root is None or not has_known_arguments(site):
        horovod.request_manual_change(
            site, "write hccl_ops.broadcast([tensor], root)[0]", "请使用 hccl_ops.broadcast([tensor], root)[0]"
        )
        return
    text = f"{site.import_npu_name('hccl_ops')}.broadcast([{site.text_of(tensor)}], {site.text_of(root)})[0]"
    replace_collective(site, text, f"broadcast through {NPU.backend}", f"broadcast 改用 {NPU.backend}")
