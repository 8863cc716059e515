"""Drop a choice of gradient compression that nobody reads any more.

     import horovod.tensorflow as hvd
     import tensorflow as tf
    -compression = hvd.Compression.fp16 if fp16 else hvd.Compression.none
     opt = tf.train.AdamOptimizer(0.1)

The accelerator's optimizer takes no such argument; the variable is left behind when that goes. One that is still read
somewhere stays and is reported.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, spec="2.8", kind="mandatory", after=("horovod_optimizer",))


@rule.node(ast.Assign, words=("Compression",))
def unread(site: Site) -> None:
    target = site.node.targets[0]
    if horovod.is_left(site) or len(site.node.targets) != 1 or not isinstance(target, ast.Name) or not chooses(site):
        return
    scope = site.work.names.scope_of(site.node)
    around = scope.node
    read = any(
        isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load)
        for node in ast.walk(around)
    )
    if read or target.id in scope.elsewhere or has_effects(site):
        return
    site.edit.remove_statement(site.node)
    site.changed(
        "the choice of a compression is gone: the accelerator's optimizer has none",
        zh="删除梯度压缩选项:NPU 分布式优化器无此参数",
    )


def chooses(site: Site) -> bool:
    mentioned = (site.qualified(node) for node in ast.walk(site.node.value) if isinstance(node, ast.Attribute))
    return any(horovod.is_horovod(name) and "Compression" in str(name) for name in mentioned)


def has_effects(site: Site) -> bool:
    """Calls would no longer be made."""
    return any(isinstance(node, ast.Call | ast.NamedExpr | ast.Await) for node in ast.walk(site.node.value))
