"""Seeds of random operators that do not depend on the number of operators in a graph.

TensorFlow 1 takes the seed of a random operator from the number of operators created before it. A migrated script
creates a few more operators, and would start from other weights. Here the seed depends on the graph's seed, the
operator's scope, and the number of random operators that the scope has already.
"""

from __future__ import annotations

import os
import random
import weakref
import zlib
from collections import Counter
from typing import Any

import numpy as np

from viaduct.rehearsal.wrapping import wrap

# By graph, then by scope: the random operators created so far.
_counts: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()


def install(seed: int | None) -> None:
    """Seed Python, NumPy and all graphs, and replace the seeds that TensorFlow gives to operators.

    Operators keep a seed from the script. If `seed` is None, do nothing.
    """
    if seed is None:
        return
    import tensorflow.compat.v1 as tf
    from tensorflow.python.framework import config, ops, random_seed

    random.seed(seed)
    np.random.seed(seed % 2**32)
    os.environ["PYTHONHASHSEED"] = str(seed % 2**32)  # for processes that the script starts
    tf.set_random_seed(seed)
    config.enable_op_determinism()

    @wrap(ops.Graph, "__init__")
    def init(plain: Any, graph: Any, *args: Any, **kwargs: Any) -> None:
        plain(graph, *args, **kwargs)
        graph.seed = seed if graph.seed is None else graph.seed

    @wrap(random_seed, "get_seed")
    def get_seed(plain: Any, op_seed: int | None) -> Any:
        if op_seed is not None or tf.executing_eagerly():
            return plain(op_seed)
        return compute_seeds(ops.get_default_graph(), seed)


def compute_seeds(graph: Any, seed: int) -> tuple[int, int]:
    """Return the seeds of the graph and of its next random operator, which depends on the operator's scope."""
    scope = graph.get_name_scope()
    counts = _counts.setdefault(graph, Counter())
    counts[scope] += 1
    graph_seed = seed if graph.seed is None else graph.seed  # an Estimator without tf_random_seed sets None
    # TensorFlow's seeds have 31 bits; it takes the pair (0, 0) for no seed, so the second is never 0.
    return int(graph_seed) % 2**31, zlib.crc32(f"{scope}#{counts[scope]}".encode()) % (2**31 - 1) + 1
