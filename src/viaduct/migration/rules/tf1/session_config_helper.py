"""Add NpuOptimizer to the ConfigProto that a function returns for sessions.

     import tensorflow as tf
    +from npu_bridge.estimator import npu_ops
    +from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
     def make_config(growth):
         config = tf.ConfigProto()
         config.gpu_options.allow_growth = growth
    +    custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    +    custom_op.name = "NpuOptimizer"
    +    custom_op.parameter_map["use_off_line"].b = True
    +    config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
         return config
     with tf.Session(config=make_config(True)) as sess:
         sess.run(step)

Sessions of the project that call the function need no other change. A function whose ConfigProto no session uses stays.
"""

from __future__ import annotations

import ast

from viaduct.migration.project import returns_of
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._session_configs import (
    add_npu_optimizer,
    allows_no_gpu,
    has_npu_optimizer,
    report_host_session,
)

rule = Rule(__name__, target_needs="sessions", spec_rows=("S11",))


@rule.node(ast.FunctionDef, ast.AsyncFunctionDef, only_if_file_contains=("ConfigProto",))
def extend_config_helper(site: Site) -> None:
    """Add NpuOptimizer to the config that a function at module level returns, if sessions of the project use it."""
    name = f"{site.file.names.module}.{site.node.name}"
    if name not in site.file.project.session_config_functions or not isinstance(
        site.source.parents[site.node], ast.Module
    ):
        return
    if site.file.project.result_kinds.get(name) != "config_proto":
        return
    for statement in returns_of(site.file.names, site.node):
        if statement.value is None or has_npu_optimizer(site, statement.value):
            continue
        return_site = Site(site.rule, site.file, statement)  # for findings and edits at the `return`
        if allows_no_gpu(return_site, statement.value):
            report_host_session(return_site)
        else:
            add_npu_optimizer(return_site, statement.value)
