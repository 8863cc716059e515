from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

HEAD = "import tensorflow as tf\n"


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ("ok = tf.reduce_all(tf.is_finite(grads))\n", "manual", "NPULossScaleOptimizer"),
        ("ok = tf.is_nan(image)\n", "advice", "host"),
        ("cell = tf.contrib.cudnn_rnn.CudnnLSTM(1, 8)\n", "manual", "cuDNN"),
        ("cell = tf.nn.rnn_cell.BasicLSTMCell(8)\n", "advice", "recurrent"),
        ("x = tf.py_func(f, [a], tf.float32)\n", "advice", "host"),
        ("def model(features, labels, mode):\n    tf.summary.scalar('a', x)\n", "advice", "host_call"),
        ("assert features.dtype == dtype\n", "advice", "cast"),
    ],
)
def test_parts_of_model_code_get_advice_or_review(source: str, status: str, word: str) -> None:
    check_says("model_advice", HEAD + source, status, word)


def test_summaries_outside_model_functions_get_no_advice() -> None:
    check_noop("model_advice", HEAD + "tf.summary.scalar('a', x)\n")
