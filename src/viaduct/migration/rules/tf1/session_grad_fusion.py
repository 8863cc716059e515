"""Add GradFusionOptimizer, which fuses the gradients that ranks exchange, to the session's config.

With `--distributed`:

     import tensorflow as tf
     from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
     config = tf.ConfigProto()
     custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
     custom_op.name = "NpuOptimizer"
     custom_op.parameter_map["use_off_line"].b = True
     config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    +config.graph_options.rewrite_options.optimizers.extend([
    +    "pruning", "function", "constfold", "shape", "arithmetic",
    +    "loop", "dependency", "layout", "GradFusionOptimizer",
    +])
     sess = tf.Session(config=config)

NPUEstimator adds it by itself. The list replaces the default optimizers of Grappler, TensorFlow's graph optimizer, so
it names them too.
"""

from __future__ import annotations

import ast

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.options import is_distributed
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as config_proto
from viaduct.migration.rules.tf1._communication import starts_communication
from viaduct.migration.rules.tf1._insertion import ends_line, starts_line

# After keras_session, which writes a session too.
rule = Rule(__name__, target_needs="sessions", spec_rows=("S8",), when=is_distributed, after=("keras_session",))

# The list of optimizers as it is written, in two lines.
FIRST_LINE = '"pruning", "function", "constfold", "shape", "arithmetic",'
SECOND_LINE = '"loop", "dependency", "layout", "GradFusionOptimizer",'
# Functions of npu_bridge that return a config or a session with NpuOptimizer.
CONFIG_HELPERS = tuple(full_name(name) for name in ("npu_config_proto", "set_keras_session_npu_config"))


@rule.node(ast.Assign, only_if_file_contains=("NpuOptimizer",))
def extend_optimizers(site: Site) -> None:
    """Extend the list of optimizers of the config to which `custom_op.name = "NpuOptimizer"` belongs."""
    target, value = site.node.targets[0], site.node.value
    if not (isinstance(target, ast.Attribute) and target.attr == "name" and is_literal_in(value, "NpuOptimizer")):
        return
    parts = config_proto.get_field_path(site, target)  # config, graph_options, rewrite_options, custom_optimizers, name
    if parts[-4:-1] != ("graph_options", "rewrite_options", "custom_optimizers"):
        return
    rewrite = parts[:-2]  # the rewrite options of this config
    function = site.source.function_around(site.node)
    if mentions_list(site, rewrite) or (function is not None and starts_communication(site, function)):
        return  # a session that starts communication computes no gradients
    last = config_proto.find_last_setting(site, rewrite, site.node)
    site.edit.insert_after(last, render_list(site, ".".join(rewrite), last))
    site.report_change(
        "the gradients that ranks exchange are fused: GradFusionOptimizer is added to Grappler's list",
        zh="分布式场景:在 rewrite_options.optimizers 中添加 GradFusionOptimizer",
    )


@rule.call(*CONFIG_HELPERS)
def report_helper(site: Site) -> None:
    site.request_review(
        f"{site.name.rpartition('.')[2]} does not add GradFusionOptimizer: extend rewrite_options.optimizers yourself",
        zh=f"{site.name.rpartition('.')[2]} 不会添加 GradFusionOptimizer,请自行扩展 rewrite_options.optimizers",
    )


def mentions_list(site: Site, rewrite: tuple[str, ...]) -> bool:
    """Return True if this function mentions the config's list of optimizers."""
    nodes = ast.walk(site.source.function_around(site.node) or site.source.tree)
    field = (*rewrite, "optimizers")
    return any(isinstance(node, ast.Attribute) and config_proto.get_field_path(site, node) == field for node in nodes)


def render_list(site: Site, rewrite: str, last: ast.stmt) -> list[str]:
    """Return the lines that extend the list; a single line if `last` shares its line with other statements."""
    if starts_line(site, last) and ends_line(site, last):
        unit = site.source.indent_unit
        return [f"{rewrite}.optimizers.extend([", f"{unit}{FIRST_LINE}", f"{unit}{SECOND_LINE}", "])"]
    return [f"{rewrite}.optimizers.extend([{FIRST_LINE} {SECOND_LINE[:-1]}])"]
