"""Wrap GraphOptions and OptimizerOptions in Ascend's helpers.

With `--style wrapper`:

     import tensorflow as tf
    -options = tf.GraphOptions(infer_shapes=True)
    +from npu_bridge.npu_init import npu_graph_options
    +options = npu_graph_options(graph_options=tf.GraphOptions(infer_shapes=True))

The helpers switch XLA off in the options. Without `--style wrapper` session_xla edits the options instead.
"""

from __future__ import annotations

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import call_with_argument
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="sessions", spec_rows=("S12",), when=lambda options: options.style == "wrapper")

HELPERS = {
    "tensorflow.GraphOptions": ("npu_graph_options", "graph_options"),
    "tensorflow.OptimizerOptions": ("npu_optimizer_options", "optimizer_options"),
}


@rule.call(*HELPERS)
def wrap_options(site: Site) -> None:
    """Wrap the call in Ascend's helper, unless it is wrapped already."""
    helper, keyword = HELPERS[site.name]
    receiver = call_with_argument(site, site.node)
    if receiver is not None and site.qualified_name(receiver.func) == full_name(helper):
        return
    if site.options.style != "wrapper" or not site.is_editable:  # --only runs the rule with any style
        return
    site.edit.enclose(site.node, f"{site.import_npu_name(helper)}({keyword}=")
    site.report_change(f"{helper} switches XLA off", zh=f"{helper} 关闭 XLA")
