"""Data parallel training, for the stand-ins of npu_bridge and Horovod: averaged gradients, broadcast variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives, state


def average_gradients(gradients: list[Any]) -> list[Any]:
    """Return gradients averaged over the ranks. None stays None; IndexedSlices get the rows of all ranks."""
    if state.size() == 1:
        return gradients
    dense = [gradient for gradient in gradients if gradient is not None and not hasattr(gradient, "indices")]
    totals = iter(collectives.allreduce(dense, "sum"))
    means: list[Any] = []
    for gradient in gradients:
        if gradient is None:
            means.append(None)
        elif hasattr(gradient, "indices"):
            means.append(average_slices(gradient))
        else:
            means.append(next(totals) / state.size())
    return means


def average_slices(gradient: Any) -> Any:
    """Return IndexedSlices with the rows of all ranks, divided by the number of ranks."""
    values = collectives.allgather(gradient.values) / state.size()
    return tf.IndexedSlices(values, collectives.allgather(gradient.indices), gradient.dense_shape)


class WrappingOptimizer(tf.train.Optimizer):  # type: ignore[misc]
    """Optimizer around an inner optimizer, whose methods are called unless a subclass overrides them."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self._optimizer = optimizer
        super().__init__(name=name, use_locking=False)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        return self._optimizer.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def broadcast_variables(variables: Iterable[Any], root_rank: int, op_name: str) -> Any:
    """Return an operator that assigns the root rank's values to variables."""
    variables = list(variables)
    values = collectives.broadcast(
        [tf.convert_to_tensor(variable) for variable in variables], root_rank, op_name=op_name
    )
    return tf.group(*[tf.assign(variable, value) for variable, value in zip(variables, values, strict=True)])


class BroadcastHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Hook that broadcasts the global variables when a session is created; with one rank it does nothing."""

    op_name: str  # name of the broadcast's operator, set by subclasses

    def __init__(self, root_rank: int) -> None:
        self.root_rank, self.bcast_op = root_rank, None

    def begin(self) -> None:
        """Build the broadcast, before the graph is finalized."""
        if state.size() > 1:
            self.bcast_op = broadcast_variables(tf.global_variables(), self.root_rank, self.op_name)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self.bcast_op is not None:
            session.run(self.bcast_op)


class BroadcastCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Keras callback that broadcasts the global variables once, at the first batch; with one rank it does nothing."""

    op_name: str  # name of the broadcast's operator, set by subclasses

    def __init__(self, root_rank: int) -> None:
        super().__init__()
        self.root_rank, self.broadcast_done = root_rank, False

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        self.broadcast_done = True
        if state.size() > 1:
            session = tf.keras.backend.get_session()
            with session.graph.as_default():
                session.run(broadcast_variables(tf.global_variables(), self.root_rank, self.op_name))
