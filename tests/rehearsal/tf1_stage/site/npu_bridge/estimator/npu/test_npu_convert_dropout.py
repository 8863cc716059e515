"""Keras' Dropout, replaced by the NPU's operator."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_nothing_is_dropped_outside_of_training_or_at_a_rate_of_zero_or_one() -> None:
    answer = evaluate(
        "npu",
        """
        plain = tf.keras.layers.Dropout.call
        try:
            from npu_bridge.estimator.npu import npu_convert_dropout
            tf.keras.layers.Dropout.call = npu_convert_dropout.call
            x, training = tf.ones([1000]), tf.placeholder(tf.bool, [])
            half, none, full = (tf.keras.layers.Dropout(rate) for rate in (0.5, 0.0, 1.0))
            outputs = [half(x, training=False), none(x, training=True), full(x, training=True),
                       half(x, training=training), half(x, training=True)]
            values = [compute(outputs, {training: flag}) for flag in (False, True)]
            answer = [[np.unique(value) for value in row] for row in values]
        finally:
            tf.keras.layers.Dropout.call = plain
        """,
    )
    assert answer == [[[1], [1], [1], [1], [0, 2]], [[1], [1], [1], [0, 2], [0, 2]]]
