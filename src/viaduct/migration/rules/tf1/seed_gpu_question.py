"""Test for a CUDA build of TensorFlow instead of listing GPUs, as in Ascend's ResNet.

With `--preset resnet-seed`:

     import tensorflow as tf
    -data_format = 'channels_first' if tf.config.list_physical_devices('GPU') else 'channels_last'
    +data_format = 'channels_first' if tf.test.is_built_with_cuda() else 'channels_last'

Listing the devices initialises them; the test does not. Both are false for the NPU's TensorFlow. The rule edits a list
of which only the truth value is used; unsupported_api reports other uses.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import argument_values
from viaduct.migration.options import has_resnet_preset
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("2.11",), category="advice", when=has_resnet_preset)

LISTING_FUNCTIONS = ("tensorflow.config.list_physical_devices", "tensorflow.config.experimental.list_physical_devices")


@rule.call(*LISTING_FUNCTIONS)
def replace_list(site: Site) -> None:
    kind = site.argument("device_type", 0)
    tf = site.file.names.local_name("tensorflow")
    is_for_gpus = is_literal_in(kind, "GPU") and len(argument_values(site.node)) == 1
    if tf is None or not is_for_gpus or not site.is_editable or not is_used_as_condition(site):
        return
    site.edit.replace_node(site.node, f"{tf}.test.is_built_with_cuda()")
    site.report_change(
        "the script tests how TensorFlow was built, which initialises no device",
        zh="改用 tf.test.is_built_with_cuda(),无需枚举设备",
    )


def is_used_as_condition(site: Site) -> bool:
    """Return True if only the truth value of the list is used: in a condition, `not`, `bool()`."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return True
    if isinstance(parent, ast.IfExp | ast.If | ast.While | ast.Assert):
        return parent.test is site.node
    return isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "bool"
