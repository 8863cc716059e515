from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("tf.estimator.inputs.numpy_input_fn(x, y, 8, 2, True)\n", "num_epochs"),
        ("tf.data.TFRecordDataset(f).repeat(epochs)\n", "without a count"),
        ("b = batch_size // num_gpus\n", "per device"),
        ("p = tf.placeholder(tf.float32, [None, None, 3])\n", "dynamic"),
    ],
)
def test_unsuitable_parts_of_input_pipelines_get_advice(source: str, word: str) -> None:
    check_says("dataset_advice", HEAD + source, "advice", word)


def test_suitable_input_pipelines_get_no_advice() -> None:
    check_noop(
        "dataset_advice",
        HEAD + "tf.data.TFRecordDataset(f).repeat()\np = tf.placeholder(tf.float32, [None, 3])\n'a'.repeat(3)\n",
    )
