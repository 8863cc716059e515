"""Functions that create batches."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    "source",
    [
        "tf.train.batch([x], 4)\n",
        "tf.train.shuffle_batch([x], 4, 9, 2, allow_smaller_final_batch=False)\n",
        "tf.data.experimental.make_batched_features_dataset('a', 4, {})\n",
        "tf.data.experimental.make_batched_features_dataset('a', 4, {}, num_epochs=1, drop_final_batch=True)\n",
        "tf.contrib.data.make_csv_dataset('a', 4, num_epochs=None)\n",
        "mylib.train.batch([x], 4, allow_smaller_final_batch=True)\n",
        "ds.apply(tf.contrib.data.batch_and_drop_remainder(4))\n",
    ],
)
def test_batches_of_one_size_are_left_alone(source: str) -> None:
    check_noop("dataset_batchers", HEAD + source)


@pytest.mark.parametrize("name", ["batch", "shuffle_batch", "batch_join", "maybe_shuffle_batch_join"])
def test_a_queue_drops_its_smaller_batch(name: str) -> None:
    line = f"tf.train.{name}([x], 4, allow_smaller_final_batch=VALUE)\n"
    for value in ("True", "not training", "FLAGS.small"):
        before, after = (HEAD + line.replace("VALUE", text) for text in (value, "False"))
        check_rewrite("dataset_batchers", before, after)
