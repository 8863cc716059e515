"""tf.contrib.seq2seq: the weighted loss over sequences."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> Any:
    """Return the cross entropy of logits [batch, time, classes] and targets [batch, time], weighted by position."""
    with tf.name_scope(name or "sequence_loss"):
        if softmax_loss_function is None:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
        else:
            losses = softmax_loss_function(labels=targets, logits=logits)
        losses = losses * weights
        if average_across_timesteps and average_across_batch:
            return tf.reduce_sum(losses) / (tf.reduce_sum(weights) + 1e-12)
        axes = [axis for axis, over in ((0, average_across_batch), (1, average_across_timesteps)) if over]
        if not axes:
            return losses
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)
