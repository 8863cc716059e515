"""Remove the choice of a gradient compression if nothing reads it any more.

     import horovod.tensorflow as hvd
     import tensorflow as tf
    -compression = hvd.Compression.fp16 if fp16 else hvd.Compression.none
     opt = tf.train.AdamOptimizer(0.1)

The NPU's optimizer has no such argument, so horovod_optimizer removes it. A variable that is still read, or whose value
contains a call, stays, and horovod_leftovers reports it.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import sole_target
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

# After horovod_optimizer, which removes arguments that read the variable.
rule = Rule(__name__, target_needs="optimizers", spec_rows=("2.8",), after=("horovod_optimizer",))


@rule.node(ast.Assign, only_if_file_contains=("Compression",))
def remove_unread(site: Site) -> None:
    """Remove an assignment that chooses a compression, if nothing in its scope reads the variable."""
    target = sole_target(site.node)
    if horovod.keeps_horovod(site) or not isinstance(target, ast.Name) or not mentions_compression(site):
        return
    scope = site.file.names.scope_of(site.node)
    names = (node for node in ast.walk(scope.node) if isinstance(node, ast.Name) and node.id == target.id)
    is_read = any(isinstance(name.ctx, ast.Load) for name in names)
    has_calls = any(isinstance(node, ast.Call | ast.NamedExpr | ast.Await) for node in ast.walk(site.node.value))
    if is_read or target.id in scope.global_or_nonlocal or has_calls:
        return
    site.edit.remove_statement(site.node)
    site.report_change(
        "the choice of a compression is removed: the accelerator's optimizer has none",
        zh="删除梯度压缩选项:NPU 分布式优化器无此参数",
    )


def mentions_compression(site: Site) -> bool:
    """Return True if the assigned value mentions a compression of Horovod."""
    names = (site.qualified_name(node) for node in ast.walk(site.node.value) if isinstance(node, ast.Attribute))
    return any(horovod.is_horovod(name) and "Compression" in str(name) for name in names)
