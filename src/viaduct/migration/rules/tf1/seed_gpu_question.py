"""Ask how TensorFlow was built instead of listing GPUs, as the vendor's ResNet does.

     import tensorflow as tf
    -data_format = 'channels_first' if tf.config.list_physical_devices('GPU') else 'channels_last'
    +data_format = 'channels_first' if tf.test.is_built_with_cuda() else 'channels_last'

Asked for with `--preset resnet-seed`. Listing devices starts them; the build is known without. Where TensorFlow is the
accelerator's both answers are no. Only where a yes or no is wanted: a list that is counted, shown or kept is reported
by unsupported_api, as without the preset.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

EXAMPLE_OPTIONS = {"preset": "resnet-seed"}
rule = Rule(__name__, rules_md_rows="2.11", kind="advice", on=lambda options: options.preset == "resnet-seed")

LISTS = ("tensorflow.config.list_physical_devices", "tensorflow.config.experimental.list_physical_devices")


@rule.call(*LISTS)
def ask_build(site: Site) -> None:
    kind = site.argument("device_type", 0)
    tf = site.work.names.local("tensorflow")
    listed = (
        isinstance(kind, ast.Constant) and kind.value == "GPU" and len(site.node.args) + len(site.node.keywords) == 1
    )
    if tf is None or not listed or not site.editable or not is_question(site):
        return
    site.edit.node(site.node, f"{tf}.test.is_built_with_cuda()")
    site.changed("the build is asked, no device is started", zh="改用 tf.test.is_built_with_cuda(),无需枚举设备")


def is_question(site: Site) -> bool:
    """Return True where only the truth of the list matters: a condition, `not`, `bool()`."""
    node: ast.AST = site.node
    parent = site.source.parents[node]
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return True
    if isinstance(parent, ast.IfExp | ast.If | ast.While | ast.Assert):
        return parent.test is node
    return isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "bool" and parent.func is not node
