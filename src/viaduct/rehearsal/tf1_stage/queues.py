"""Makes the order of elements from shuffling queues reproducible.

A shuffling queue draws from its present elements, and their number depends on its threads. Here its capacity is one
more than min_after_dequeue, so that each draw is from the same number of elements, and each enqueue operator is run by
one thread. `tf.train.shuffle_batch` and `tf.estimator.inputs.numpy_input_fn` use such queues.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from viaduct.rehearsal.wrapping import wrap


def install() -> None:
    """Wrap the queues, their runners, and the random numbers of numpy_input_fn."""
    from tensorflow.python.ops import data_flow_ops
    from tensorflow.python.training import queue_runner_impl
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    feeding_functions.random = FixedRandom()
    wrap(data_flow_ops.RandomShuffleQueue, "__init__")(init_queue)
    wrap(queue_runner_impl.QueueRunner, "_init_from_args")(init_runner)


class FixedRandom(random.Random):
    """Replaces the `random` module in numpy_input_fn, which seeds it from the clock if the script gives no seed."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(0 if a is None else a, version)


def init_queue(
    plain: Callable[..., None], self: Any, capacity: int, min_after_dequeue: int, *args: Any, **kwargs: Any
) -> None:
    """Initialise a shuffling queue with a capacity of at most min_after_dequeue + 1."""
    plain(self, min(capacity, min_after_dequeue + 1), min_after_dequeue, *args, **kwargs)


def init_runner(
    plain: Callable[..., None], self: Any, queue: Any = None, enqueue_ops: Any = None, *args: Any, **kwargs: Any
) -> None:
    """Initialise a queue runner with each operator once: it starts a thread for every entry of `enqueue_ops`."""
    unique_ops = list({id(op): op for op in enqueue_ops or ()}.values())
    plain(self, queue, unique_ops or enqueue_ops, *args, **kwargs)
