"""Importing this module replaces Keras' Dropout by the NPU's operator, here TensorFlow's dropout."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from .. import npu_ops


def call(self: Any, inputs: Any, training: Any = None) -> Any:
    """Drop values in training; replaces Dropout.call."""
    if training is None:
        training = tf.keras.backend.learning_phase()
    if not 0 < self.rate < 1:
        return tf.identity(inputs)
    shape = self._get_noise_shape(inputs)

    def apply_dropout() -> Any:
        return npu_ops.dropout(inputs, 1 - self.rate, noise_shape=shape, seed=self.seed)

    if isinstance(training, (bool, int)):
        return apply_dropout() if training else tf.identity(inputs)
    return tf.cond(tf.cast(training, tf.bool), apply_dropout, lambda: tf.identity(inputs))


tf.keras.layers.Dropout.call = call
