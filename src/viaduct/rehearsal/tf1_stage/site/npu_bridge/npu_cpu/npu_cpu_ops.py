"""Operators of the NPU's AI CPU: dense_image_warp, and a refusal of hash tables."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def embedding_hash_table(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("embedding_hash_table needs the NPU's AI CPU, which a rehearsal does not have")


def dense_image_warp(image: Any, flow: Any, name: str | None = None) -> Any:
    """Return an image whose pixel at p is the input at p - flow[p], interpolated bilinearly."""
    height, width = tf.shape(image)[1], tf.shape(image)[2]
    rows, columns = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
    positions = tf.cast(tf.stack([rows, columns], -1), flow.dtype)[None] - flow
    last = tf.cast(tf.stack([height - 1, width - 1]), flow.dtype)
    low = tf.clip_by_value(tf.floor(positions), 0.0, tf.maximum(last - 1, 0.0))  # the upper left of four pixels
    fraction = tf.clip_by_value(positions - low, 0.0, 1.0)  # weights of the next row and column
    corner = tf.cast(low, tf.int32)
    warped = 0.0
    for down in (0, 1):
        for right in (0, 1):
            vertical = fraction[..., :1] if down else 1 - fraction[..., :1]
            horizontal = fraction[..., 1:] if right else 1 - fraction[..., 1:]
            pixels = tf.gather_nd(image, corner + tf.constant([down, right]), batch_dims=1)
            warped += vertical * horizontal * pixels
    return tf.identity(warped, name=name)
