"""tf.contrib.data, the former name of tf.data.experimental. `prefetch_to_device` prefetches on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def prefetch_to_device(device: str, buffer_size: int | None = None) -> Callable[[Any], Any]:
    return lambda dataset: dataset.prefetch(buffer_size or 1)


def unbatch() -> Callable[[Any], Any]:
    return lambda dataset: dataset.unbatch()


AUTOTUNE = tf.data.experimental.AUTOTUNE
ignore_errors = tf.data.experimental.ignore_errors
map_and_batch = tf.data.experimental.map_and_batch
parallel_interleave = tf.data.experimental.parallel_interleave
shuffle_and_repeat = tf.data.experimental.shuffle_and_repeat
