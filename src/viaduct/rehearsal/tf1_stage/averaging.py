"""Gradients averaged over the ranks, as NPUDistributedOptimizer and Horovod's optimizer do it."""

from __future__ import annotations

from typing import Any

from viaduct.rehearsal.tf1_stage import collectives, state


def average_gradients(gradients: list[Any], kind: str = "HcomAllReduce") -> list[Any]:
    """Return gradients averaged over the ranks. None stays None; IndexedSlices hold the rows of all ranks."""
    if state.size() == 1:
        return gradients
    dense = [gradient for gradient in gradients if gradient is not None and not hasattr(gradient, "indices")]
    means = iter([total / state.size() for total in collectives.allreduce(dense, "sum", kind=kind)])
    return [
        None if gradient is None else sparse_mean(gradient) if hasattr(gradient, "indices") else next(means)
        for gradient in gradients
    ]


def sparse_mean(gradient: Any) -> Any:
    """Return IndexedSlices with the rows of all ranks, divided by their number."""
    import tensorflow.compat.v1 as tf

    values = collectives.allgather(gradient.values) / state.size()
    return tf.IndexedSlices(values, collectives.allgather(gradient.indices), gradient.dense_shape)
