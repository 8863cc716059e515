"""Queues that threads fill, in an order that a second run repeats.

What a shuffling queue hands out depends on how many elements its threads have put in when it is asked, and no seed
reaches that. Here it holds as many as it must keep and one more, so that each draw is from the same number, and one
thread does what several would do with the same operator. `tf.train.shuffle_batch` and
`tf.estimator.inputs.numpy_input_fn` are made of such queues.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any


def install() -> None:
    from tensorflow.python.ops import data_flow_ops
    from tensorflow.python.training import queue_runner_impl
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    feeding_functions.random = Repeating()
    shuffling = data_flow_ops.RandomShuffleQueue
    shuffling.__init__ = without_slack(shuffling.__init__)
    runner = queue_runner_impl.QueueRunner
    runner._init_from_args = with_one_thread(runner._init_from_args)


class Repeating(random.Random):
    """Random numbers of numpy_input_fn, which asks for a seed of chance where the script gives none."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(0 if a is None else a, version)


def without_slack(plain: Callable[..., None]) -> Callable[..., None]:
    """A shuffling queue that has room for one element more than it keeps: each draw is from the same number of them."""

    @functools.wraps(plain)
    def init(self: Any, capacity: int, min_after_dequeue: int, *args: Any, **named: Any) -> None:
        plain(self, min(capacity, min_after_dequeue + 1), min_after_dequeue, *args, **named)

    return init


def with_one_thread(plain: Callable[..., None]) -> Callable[..., None]:
    """A runner has a thread for each operator that it is given, and is given the same one for several threads."""

    @functools.wraps(plain)
    def init(self: Any, queue: Any = None, enqueue_ops: Any = None, *args: Any, **named: Any) -> None:
        different = list({id(op): op for op in enqueue_ops or ()}.values())
        plain(self, queue, different or enqueue_ops, *args, **named)

    return init
