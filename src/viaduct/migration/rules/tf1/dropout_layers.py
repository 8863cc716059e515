"""Replace the dropout of tf.layers and tf.keras.layers by the NPU's operator.

With `--dropout-layers`:

     import tensorflow as tf
    +from npu_bridge.estimator.npu import npu_convert_dropout
     x = tf.layers.dropout(x, 0.4)

Importing npu_convert_dropout patches `Dropout.call` of tf.keras, from which tf.layers.Dropout derives; the dropout of
slim, contrib and the standalone package keras stays.
"""

from __future__ import annotations

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.lookups import calls_to
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("N2",), category="performance", when=lambda options: options.dropout_layers)

LAYERS = (
    "tensorflow.layers.dropout", "tensorflow.layers.Dropout", "tensorflow.keras.layers.Dropout",
    "tensorflow.keras.layers.SpatialDropout1D", "tensorflow.keras.layers.SpatialDropout2D",
)  # fmt: skip
MODULE = full_name("npu_convert_dropout")


@rule.file(only_if_file_contains=("dropout", "Dropout"))
def import_patch(site: Site) -> None:
    calls = calls_to(site, LAYERS)
    if calls and site.file.names.local_name(MODULE) is None:
        site.file.side_effect_imports.add(MODULE)
        site.report_change(
            "Dropout layers use the device's operator: npu_convert_dropout is imported",
            zh="Dropout 层使用昇腾算子:导入 npu_convert_dropout",
            node=calls[0],
        )
