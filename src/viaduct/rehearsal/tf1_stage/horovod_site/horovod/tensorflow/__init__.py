"""horovod.tensorflow: collectives, the distributed optimizer, the broadcast hook."""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives, data_parallel

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
# Names of gloo's reductions; Average and Adasum are sums, which are divided here.
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
    """Return the mean over the ranks, or what `average` or `op` asks for. Adasum is computed as the mean."""
    reduction = (Sum if average is False else Average) if op is None else op
    if hasattr(tensor, "indices"):
        mean = data_parallel.sparse_mean(tensor) if size() > 1 else tensor
        factor = 1 if reduction == Average else size()
        return tf.IndexedSlices(mean.values * factor, mean.indices, mean.dense_shape)
    compressed, context = compression.compress(tf.convert_to_tensor(tensor))
    compressed = compressed if prescale_factor == 1.0 else compressed * prescale_factor
    (total,) = collectives.allreduce([compressed], _NAMES.get(reduction, "sum"), kind="HorovodAllreduce")
    result = compression.decompress(total, context)
    result = result / size() if reduction in (Average, Adasum) and size() > 1 else result
    return result if postscale_factor == 1.0 else result * postscale_factor


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Return the tensors of all ranks, concatenated; their first dimensions may differ."""
    return collectives.allgather(tf.convert_to_tensor(tensor), kind="HorovodAllgather") if size() > 1 else tensor


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    return collectives.broadcast([tf.convert_to_tensor(tensor)], root_rank, kind="HorovodBroadcast")[0]


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> Any:
    """Return an operator that assigns the root rank's values to variables."""
    return data_parallel.broadcast_variables(variables, root_rank, "HorovodBroadcast")


def broadcast_global_variables(root_rank: int) -> Any:
    return broadcast_variables(tf.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(data_parallel.BroadcastHook):
    """Hook that broadcasts all variables when a session is created."""

    kind = "HorovodBroadcast"

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__(root_rank)


class _Distributed(data_parallel.WrappingOptimizer):
    """The inner optimizer, with gradients that are means or sums over the ranks."""

    def __init__(self, optimizer: Any, name: str | None, compression: Any, sparse_as_dense: bool, op: int) -> None:
        self._compression, self._sparse_as_dense, self._op = compression, sparse_as_dense, op
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Compute gradients and reduce them over the ranks."""
        pairs = super().compute_gradients(*args, **kwargs)
        if size() == 1:
            return list(pairs)
        compressed = [self._compress(gradient) for gradient, _ in pairs]
        means = data_parallel.average_gradients([gradient for gradient, _ in compressed], "HorovodAllreduce")
        return [
            (self._decompress(mean, context), variable)
            for mean, (_, context), (_, variable) in zip(means, compressed, pairs, strict=True)
        ]

    def _compress(self, gradient: Any) -> tuple[Any, Any]:
        """Return a gradient as it is exchanged, and what decompressing it needs; sparse ones are not compressed."""
        if gradient is None or (hasattr(gradient, "indices") and not self._sparse_as_dense):
            return gradient, None
        compressed, context = self._compression.compress(tf.convert_to_tensor(gradient))
        return compressed, context

    def _decompress(self, mean: Any, context: Any) -> Any:
        if mean is None or hasattr(mean, "indices"):
            return mean
        gradient = self._compression.decompress(mean, context)
        return gradient * size() if self._op == Sum else gradient


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
