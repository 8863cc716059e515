"""Randomness that does not depend on how a graph was built.

TensorFlow 1 takes the seed of a random operator from the number of operators created before it, so that a migrated
script, which has a few others, starts from other weights. Here it is made of the graph's seed, of the scope the
operator is created in, and of how many random operators that scope has already.
"""

from __future__ import annotations

import os
import random
import weakref
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

_counts: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()


def install(seed: int | None) -> None:
    """Give operators without a seed one that depends on their scope alone."""
    if seed is None:
        return
    import tensorflow.compat.v1 as tf
    from tensorflow.python.framework import config, ops, random_seed

    random.seed(seed)
    np.random.seed(seed % 2**32)
    os.environ["PYTHONHASHSEED"] = str(seed)  # of processes that the script starts
    ops.Graph.__init__ = wrap_seeded(ops.Graph.__init__, seed)
    random_seed.get_seed = by_scope(random_seed.get_seed, seed)
    tf.set_random_seed(seed)
    config.enable_op_determinism()


def wrap_seeded(plain: Callable[..., Any], seed: int) -> Callable[..., Any]:
    """Return a constructor that sets a missing seed."""

    def init(self: Any, *args: Any, **named: Any) -> None:
        plain(self, *args, **named)
        if self.seed is None:
            self.seed = seed

    return init


def by_scope(plain: Callable[..., Any], seed: int) -> Callable[..., Any]:
    def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
        from tensorflow.python.eager import context
        from tensorflow.python.framework import ops

        graph = ops.get_default_graph()
        if op_seed is not None or context.executing_eagerly():
            found: tuple[int | None, int | None] = plain(op_seed)
            return found
        scope = graph.get_name_scope()
        count = _counts.setdefault(graph, Counter())
        count[scope] += 1
        own = seed if graph.seed is None else graph.seed  # an Estimator without tf_random_seed sets None
        return int(own) % 2**31, zlib.crc32(f"{scope}#{count[scope]}".encode()) % (2**31 - 1) + 1

    return get_seed
