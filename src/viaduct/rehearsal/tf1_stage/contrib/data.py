"""tf.contrib.data: what became tf.data.experimental."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def map_and_batch(*args: Any, **kwargs: Any) -> Any:
    """Call tf.data.experimental's function, looked up late: the stand-in is installed before it."""
    return tf.data.experimental.map_and_batch(*args, **kwargs)


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def parallel_interleave(*args: Any, **kwargs: Any) -> Any:
    return tf.data.experimental.parallel_interleave(*args, **kwargs)


def shuffle_and_repeat(*args: Any, **kwargs: Any) -> Any:
    return tf.data.experimental.shuffle_and_repeat(*args, **kwargs)


def prefetch_to_device(device: str, buffer_size: int | None = None) -> Callable[[Any], Any]:
    return lambda dataset: dataset.prefetch(buffer_size or 1)


def ignore_errors() -> Any:
    return tf.data.experimental.ignore_errors()


def unbatch() -> Callable[[Any], Any]:
    return lambda dataset: dataset.unbatch()


AUTOTUNE = tf.data.experimental.AUTOTUNE
