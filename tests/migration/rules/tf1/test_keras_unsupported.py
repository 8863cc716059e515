from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says

RULE = "keras_unsupported"


def test_the_users_functions_of_these_names_are_not_meant() -> None:
    check_noop(RULE, "from mylib import multi_gpu_model\nmulti_gpu_model(m, 2)\nself.executing_eagerly()\n")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("from keras.utils import multi_gpu_model\nm = multi_gpu_model(m, 2)\n", "--distributed"),
        ("import tensorflow as tf\ntf.keras.callbacks.TerminateOnNaN()\n", "overflow"),
        ("import tensorflow as tf\nCELL = tf.keras.layers.CuDNNLSTM\n", "LSTM"),
        ("from tensorflow.keras.layers import CuDNNGRU\nCuDNNGRU(3)\n", "GRU"),
        ("from tensorflow.keras.layers import CuDNNGRU\ncells = [CuDNNGRU]\n", "GRU"),
        ("import tensorflow as tf\ntf.keras.mixed_precision.experimental.set_policy('mixed_float16')\n", "--precision"),
        ("import tensorflow as tf\ntf.enable_eager_execution()\n", "graphs"),
        ("import tensorflow as tf\nm = tf.keras.Sequential()\nm.compile('sgd', run_eagerly=True)\n", "run_eagerly"),
    ],
)
def test_unsupported_parts_of_keras_need_manual_review(text: str, word: str) -> None:
    check_says(RULE, text, "manual", word)


def test_executing_eagerly_gets_advice() -> None:
    check_says(RULE, "import tensorflow as tf\nif tf.executing_eagerly():\n    pass\n", "advice", "eager")
