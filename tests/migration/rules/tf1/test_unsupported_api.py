"""Functions of TensorFlow that Ascend's table does not list as supported."""

from __future__ import annotations

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


def test_a_supported_function_is_not_reported() -> None:
    check_noop("unsupported_api", HEAD + "x = tf.zeros([2])\n")


def test_an_unsupported_function_is_reported_with_the_advice_of_the_table() -> None:
    check_says("unsupported_api", HEAD + "x = tf.contrib.nccl.all_sum(xs)\n", "manual", "tf.contrib.nccl.all_sum")


def test_a_list_of_gpus_that_is_counted_needs_manual_review() -> None:
    check_says("unsupported_api", HEAD + "n = len(tf.config.list_physical_devices('GPU'))\n", "manual", "count 1")
