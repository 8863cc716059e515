"""Initialisers and regularisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

Regularizer = Callable[[Any], Any]


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32) -> Any:
    """Return Glorot's initializer, uniform or normal."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """Return an initializer with variance factor / fan, uniform or normal truncated at two standard deviations."""
    kind = "uniform" if uniform else "truncated_normal"
    return tf.variance_scaling_initializer(factor, mode.lower(), kind, seed=seed, dtype=dtype)


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    return make_regularizer(tf.nn.l2_loss, scale, scope or "l2_regularizer")


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    return make_regularizer(lambda weights: tf.reduce_sum(tf.abs(weights)), scale, scope or "l1_regularizer")


def make_regularizer(measure: Callable[[Any], Any], scale: float, scope: str) -> Regularizer:
    """Return a function that computes scale * measure(weights); for scale 0 this function returns None."""

    def compute_penalty(weights: Any) -> Any:
        if scale == 0.0:
            return None
        with tf.name_scope(scope) as name:
            return tf.multiply(tf.constant(scale, weights.dtype.base_dtype), measure(weights), name=name)

    return compute_penalty


def sum_regularizer(regularizer_list: list[Any], scope: str | None = None) -> Regularizer | None:
    """Return a function that computes the sum of several penalties; None if all regularizers are None."""
    regularizers = [regularizer for regularizer in regularizer_list if regularizer is not None]
    if not regularizers:
        return None

    def add_penalties(weights: Any) -> Any:
        penalties = [penalty for regularizer in regularizers if (penalty := regularizer(weights)) is not None]
        return tf.add_n(penalties) if penalties else None

    return add_penalties


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Regularizer | None:
    """Return a function that computes the sum of the L1 and the L2 penalty."""
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Any:
    """Return the sum of the penalties of all weights, and add each penalty to the losses."""
    weights = weights_list or tf.get_collection(tf.GraphKeys.WEIGHTS)
    penalties = [penalty for weight in weights if (penalty := regularizer(weight)) is not None]
    for penalty in penalties:
        tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, penalty)
    return tf.add_n(penalties) if penalties else tf.constant(0.0)
