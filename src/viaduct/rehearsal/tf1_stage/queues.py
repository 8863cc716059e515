"""Makes the order of elements from shuffling queues reproducible.

A shuffling queue draws from its present elements, and their number depends on its threads. Here its capacity is one
more than min_after_dequeue, so that each draw is from the same number of elements, and each enqueue operator is run by
one thread. `tf.train.shuffle_batch` and `tf.estimator.inputs.numpy_input_fn` use such queues.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any


def install() -> None:
    """Wrap the queues, their runners, and the random numbers of numpy_input_fn."""
    from tensorflow.python.ops import data_flow_ops
    from tensorflow.python.training import queue_runner_impl
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    feeding_functions.random = FixedRandom()
    shuffling = data_flow_ops.RandomShuffleQueue
    shuffling.__init__ = wrap_queue_init(shuffling.__init__)
    runner = queue_runner_impl.QueueRunner
    runner._init_from_args = wrap_runner_init(runner._init_from_args)


class FixedRandom(random.Random):
    """Replaces the `random` module in numpy_input_fn, which seeds it from the clock if the script gives no seed."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(0 if a is None else a, version)


def wrap_queue_init(plain: Callable[..., None]) -> Callable[..., None]:
    """Wrap the constructor of a shuffling queue so that its capacity is min_after_dequeue + 1."""

    @functools.wraps(plain)
    def init(self: Any, capacity: int, min_after_dequeue: int, *args: Any, **kwargs: Any) -> None:
        plain(self, min(capacity, min_after_dequeue + 1), min_after_dequeue, *args, **kwargs)

    return init


def wrap_runner_init(plain: Callable[..., None]) -> Callable[..., None]:
    """Wrap the constructor of a queue runner so that it has one thread for each different operator.

    A runner starts a thread for each operator in its list, which may hold the same operator several times.
    """

    @functools.wraps(plain)
    def init(self: Any, queue: Any = None, enqueue_ops: Any = None, *args: Any, **kwargs: Any) -> None:
        unique_ops = list({id(op): op for op in enqueue_ops or ()}.values())
        plain(self, queue, unique_ops or enqueue_ops, *args, **kwargs)

    return init
