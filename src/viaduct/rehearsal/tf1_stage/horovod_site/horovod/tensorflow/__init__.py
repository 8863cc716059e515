"""horovod.tensorflow: collectives, the distributed optimizer, the broadcast hook."""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import averaging, collectives, state

from .._ranks import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)
from .compression import Compression as Compression

Average, Sum, Adasum, Min, Max, Product = range(6)
_NAMES = {Sum: "sum", Min: "min", Max: "max", Product: "prod"}


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> Any:
    """A mean over the ranks unless something else is asked for."""
    chosen = (Sum if average is False else Average) if op is None else op
    if hasattr(tensor, "indices"):
        mean = averaging.sparse_mean(tensor) if size() > 1 else tensor
        factor = 1 if chosen == Average else size()
        return tf.IndexedSlices(mean.values * factor, mean.indices, mean.dense_shape)
    small, context = compression.compress(tf.convert_to_tensor(tensor))
    small = small if prescale_factor == 1.0 else small * prescale_factor
    (total,) = collectives.allreduce([small], _NAMES.get(chosen, "sum"), kind="HorovodAllreduce")
    result = compression.decompress(total, context)
    result = result / size() if chosen in (Average, Adasum) and size() > 1 else result
    return result if postscale_factor == 1.0 else result * postscale_factor


def allgather(tensor: Any, name: str | None = None) -> Any:
    """First dimensions may differ between ranks."""
    asked = size()
    return collectives.allgather(tf.convert_to_tensor(tensor), kind="HorovodAllgather") if asked > 1 else tensor


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the tensor of the root rank on every rank."""
    return collectives.broadcast([tf.convert_to_tensor(tensor)], root_rank, kind="HorovodBroadcast")[0]


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> Any:
    """Return an operator that assigns the root rank's values to variables."""
    variables = list(variables)
    values = collectives.broadcast([tf.convert_to_tensor(v) for v in variables], root_rank, kind="HorovodBroadcast")
    return tf.group(*[tf.assign(variable, value) for variable, value in zip(variables, values, strict=True)])


def broadcast_global_variables(root_rank: int) -> Any:
    """Return an operator that assigns the root rank's values to all variables."""
    return broadcast_variables(tf.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Hook that broadcasts all variables when a session is created."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        self.root_rank, self.bcast_op = root_rank, None

    def begin(self) -> None:
        """Build the broadcast, unless there is one rank."""
        if state.size() > 1:
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the broadcast."""
        if self.bcast_op is not None:
            session.run(self.bcast_op)


class _Distributed(tf.train.Optimizer):  # type: ignore[misc]
    """The inner optimizer, with gradients that are means over the ranks."""

    def __init__(self, optimizer: Any, name: str | None, compression: Any, sparse_as_dense: bool, op: int) -> None:
        self._optimizer, self._compression = optimizer, compression
        self._sparse_as_dense, self._op = sparse_as_dense, op
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=False)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Compute gradients and average them over the ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if size() == 1:
            return list(pairs)
        dense = [self._travelling(gradient) for gradient, _ in pairs]
        means = averaging.average_gradients([small for small, _ in dense], "HorovodAllreduce")
        factor = size() if self._op == Sum else 1
        decompressed = [
            self._decompress(mean, context, factor) for mean, (_, context) in zip(means, dense, strict=True)
        ]
        return [(gradient, variable) for gradient, (_, variable) in zip(decompressed, pairs, strict=True)]

    def _travelling(self, gradient: Any) -> tuple[Any, Any]:
        if gradient is None or (hasattr(gradient, "indices") and not self._sparse_as_dense):
            return gradient, None
        small, context = self._compression.compress(tf.convert_to_tensor(gradient))
        return small, context

    def _decompress(self, mean: Any, context: Any, factor: int) -> Any:
        if mean is None or hasattr(mean, "indices"):
            return mean
        gradient = self._compression.decompress(mean, context)
        return gradient if factor == 1 else gradient * factor

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Apply gradients with the inner optimizer."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the inner optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the slots' names of the inner optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the variables of the inner optimizer."""
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    **kwargs: Any,
) -> Any:
    """Return an optimizer that averages gradients over the ranks; for Keras' optimizers Keras' own."""
    if hasattr(optimizer, "get_gradients"):
        from .._keras import DistributedOptimizer as for_keras

        return for_keras(optimizer, compression=compression, sparse_as_dense=sparse_as_dense)
    return _Distributed(optimizer, name, compression, sparse_as_dense, op)
