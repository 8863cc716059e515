"""Ask how TensorFlow was built instead of listing GPUs, as the vendor's ResNet does.

With `--preset resnet-seed`:

     import tensorflow as tf
    -data_format = 'channels_first' if tf.config.list_physical_devices('GPU') else 'channels_last'
    +data_format = 'channels_first' if tf.test.is_built_with_cuda() else 'channels_last'

Only with `--preset resnet-seed`. Listing the devices initialises them; asking for the build does not. Both are false
for the TensorFlow of the accelerator. The rule edits only a list of which the truth value is used: one that is counted,
shown or kept is reported by unsupported_api, as without the preset.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import argument_values
from viaduct.migration.predicates import is_literal_in
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, category="advice", when=lambda options: options.preset == "resnet-seed")

LISTING_FUNCTIONS = ("tensorflow.config.list_physical_devices", "tensorflow.config.experimental.list_physical_devices")


@rule.call(*LISTING_FUNCTIONS)
def ask_build(site: Site) -> None:
    kind = site.argument("device_type", 0)
    tf = site.work.names.local_name("tensorflow")
    asks_for_gpus = is_literal_in(kind, "GPU") and len(argument_values(site.node)) == 1
    if tf is None or not asks_for_gpus or not site.is_editable or not is_question(site):
        return
    site.edit.node(site.node, f"{tf}.test.is_built_with_cuda()")
    site.report_change(
        "the script asks how TensorFlow was built: that initialises no device",
        zh="改用 tf.test.is_built_with_cuda(),无需枚举设备",
    )


def is_question(site: Site) -> bool:
    """Return True if only the truth value of the list is used: in a condition, `not`, `bool()`."""
    parent = site.source.parents[site.node]
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return True
    if isinstance(parent, ast.IfExp | ast.If | ast.While | ast.Assert):
        return parent.test is site.node
    return isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "bool"
