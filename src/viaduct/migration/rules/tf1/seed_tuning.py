"""Cast labels and the step counter as in Ascend's ResNet.

With `--preset resnet-seed`:

     import tensorflow as tf
    -accuracy = tf.metrics.accuracy(labels, predictions)
    -learning_rate = tf.train.piecewise_constant(global_step, boundaries, values)
    +accuracy = tf.metrics.accuracy(tf.cast(labels, tf.float32), predictions)
    +learning_rate = tf.train.piecewise_constant(tf.cast(global_step, tf.int32), boundaries, values)

int64 and float64 are slow on the device. The rule also advises tf.nn.max_pool_with_argmax, which is faster than
tf.layers.max_pooling2d. The rule preset_resnet_seed gives the preset's other advice.
"""

from __future__ import annotations

import ast

from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.options import has_resnet_preset
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("N5", "N6", "N7"), category="performance", when=has_resnet_preset)

SCHEDULES = {  # schedule -> name and position of the argument that gets the step counter
    "tensorflow.train.piecewise_constant": ("x", 0),
    "tensorflow.train.piecewise_constant_decay": ("x", 0),
    **{
        f"tensorflow.train.{name}": ("global_step", 1)
        for name in ("exponential_decay", "polynomial_decay", "cosine_decay", "inverse_time_decay", "natural_exp_decay")
    },
}


@rule.call("tensorflow.metrics.accuracy")
def cast_labels(site: Site) -> None:
    cast_argument(site, site.argument("labels", 0), "float32", "labels are cast to float32", "标签转为 float32")


@rule.call(*SCHEDULES)
def cast_step(site: Site) -> None:
    cast_argument(
        site, site.argument(*SCHEDULES[site.name]), "int32", "the step counter is cast to int32", "步数转为 int32"
    )


def cast_argument(site: Site, value: ast.expr | None, dtype: str, message: str, zh: str) -> None:
    """Cast an argument to a dtype, unless it is cast already."""
    tf = site.file.names.local_name("tensorflow")
    if value is None or tf is None or not site.is_editable:
        return
    if isinstance(value, ast.Call) and site.qualified_name(value.func) in ("tensorflow.cast", "tensorflow.to_float"):
        return
    site.edit.replace_node(value, f"{tf}.cast({site.text_of(value)}, {tf}.{dtype})")
    site.report_change(message, zh=zh)


add_notices(
    rule,
    Notice(
        ("tensorflow.layers.max_pooling2d",),
        "tf.nn.max_pool_with_argmax (ksize and strides with four numbers, second output unused) is faster right after "
        "the stem",
        "stem 之后可用 tf.nn.max_pool_with_argmax(ksize、strides 为四元组,忽略第二个输出)提升性能",
        status="advice",
    ),
)
