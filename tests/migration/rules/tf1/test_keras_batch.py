from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\nmodel = tf.keras.Sequential()\n"


@pytest.mark.parametrize(
    "body",
    [
        "other.fit(x, y, batch_size=32)\n",
        "model.fit(x, y, batch_size=32, steps_per_epoch=10)\n",
        "model.fit(tf.data.TFRecordDataset(f).batch(3))\n",
        "model.fit(dataset, epochs=3)\n",
    ],
)
def test_no_advice_where_all_batches_are_equal(body: str) -> None:
    check_noop("keras_batch", HEAD + body)


def test_fit_on_arrays_gets_advice() -> None:
    check_says("keras_batch", HEAD + "model.fit(x, y, batch_size=32)\n", "advice", "shorter")
