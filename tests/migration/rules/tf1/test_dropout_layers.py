from __future__ import annotations

import pytest

from migration.checking import check_noop, migrate_source

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "source",
    [
        "y = tf.nn.dropout(x, 0.4)\n",
        "y = Dropout(0.4)(x)\n",
        "import keras\ny = keras.layers.Dropout(0.4)(x)\n",
        "from npu_bridge.estimator.npu import npu_convert_dropout\ny = tf.layers.dropout(x, 0.4)\n",
    ],
)
def test_other_dropouts_and_patched_layers_are_left_alone(source: str) -> None:
    check_noop("dropout_layers", HEAD + source, dropout_layers=True)


@pytest.mark.parametrize("layer", ["tf.keras.layers.Dropout(0.4)(x)", "tf.layers.dropout(x, 0.4)"])
def test_layers_are_patched_by_an_import_and_only_if_requested(layer: str) -> None:
    wanted = b"from npu_bridge.estimator.npu import npu_convert_dropout\n"
    assert migrate_source(HEAD + f"y = {layer}\n", "dropout_layers", dropout_layers=True).after.count(wanted) == 1
    assert wanted not in migrate_source(HEAD + f"y = {layer}\n").after
