"""Operators of the NPU's own CPU, as far as TensorFlow has them."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def embedding_hash_table(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("hash tables of the NPU's CPU are not part of a rehearsal")


def dense_image_warp(image: Any, flow: Any, name: str | None = None) -> Any:
    """Each pixel from where the flow points back to, bilinearly."""
    height, width = tf.shape(image)[1], tf.shape(image)[2]
    rows, columns = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
    positions = tf.cast(tf.stack([rows, columns], -1), flow.dtype)[None] - flow
    limits = tf.cast(tf.stack([height - 1, width - 1]), flow.dtype)
    low = tf.clip_by_value(tf.floor(positions), 0.0, tf.maximum(limits - 1, 0.0))
    share = tf.clip_by_value(positions - low, 0.0, 1.0)
    corner = tf.cast(low, tf.int32)
    found = 0.0
    for down in (0, 1):
        for right in (0, 1):
            weight = (share[..., :1] if down else 1 - share[..., :1]) * (
                share[..., 1:] if right else 1 - share[..., 1:]
            )
            found += weight * tf.gather_nd(image, corner + tf.constant([down, right]), batch_dims=1)
    return tf.identity(found, name=name)
