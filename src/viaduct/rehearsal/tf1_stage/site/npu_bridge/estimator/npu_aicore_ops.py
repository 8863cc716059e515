"""Operators of the NPU's AI Core, composed of TensorFlow's own."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from . import npu_ops


def fast_gelu_v2(x: Any, name: str | None = None) -> Any:
    """Return the NPU's approximation of GELU, with a parabola instead of the Gauss integral.

    x · (sign(x) · (−0.1444 · (min(|0.7071 · x|, 1.769) − 1.769)² + 0.5) + 0.5)
    """
    x = tf.convert_to_tensor(x)
    clipped = tf.minimum(tf.abs(x * 0.7071), 1.769) - 1.769
    return tf.multiply(x, tf.sign(x) * (-0.1444 * tf.square(clipped) + 0.5) + 0.5, name=name)


def centralization(x: Any, axes: Any = (-1,), name: str | None = None) -> Any:
    return tf.subtract(x, tf.reduce_mean(x, axis=list(axes), keepdims=True), name=name)


def prelu(x: Any, weight: Any, name: str | None = None) -> Any:
    return tf.add(tf.nn.relu(x), weight * tf.minimum(x, 0.0), name=name)


def dropout_v3(
    x: Any, keep_prob: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None
) -> Any:
    return npu_ops.dropout(x, keep_prob, noise_shape, seed, name)


dropout_v4 = dropout_v3


def nonzero(x: Any, transpose: bool = False, output_type: Any = tf.int64, name: str | None = None) -> Any:
    positions = tf.cast(tf.where(tf.not_equal(x, tf.zeros([], tf.convert_to_tensor(x).dtype))), output_type, name=name)
    return tf.transpose(positions) if transpose else positions


def layer_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    begin_norm_axis: int = 0,
    begin_params_axis: int = 0,
    epsilon: float = 1e-7,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return the normalised tensor, the mean and the variance.

    `gamma` and `beta` are broadcast, so `begin_params_axis`, the first of their axes, is not needed.
    """
    x = tf.convert_to_tensor(x)
    rank = x.shape.rank
    mean, variance = tf.nn.moments(x, list(range(begin_norm_axis % rank, rank)), keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + epsilon) * gamma + beta, mean, variance
