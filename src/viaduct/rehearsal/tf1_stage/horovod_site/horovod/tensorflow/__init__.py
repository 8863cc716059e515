"""horovod.tensorflow: collectives, the distributed optimizer, the broadcast hook."""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import data_parallel

from .._ranks import *  # noqa: F403
from ._exchanges import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allreduce,
    broadcast,
    check_variables,
    reduce_gradients,
    refuse_accumulation,
)
from .compression import Compression


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> Any:
    """Return an operator that assigns the root rank's values to variables."""
    variables = check_variables(variables)
    return data_parallel.broadcast_variables(variables, root_rank, "HorovodBroadcast")


def broadcast_global_variables(root_rank: int) -> Any:
    return broadcast_variables(tf.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(data_parallel.BroadcastHook):
    """Hook that broadcasts all variables when a session is created."""

    op_name = "HorovodBroadcast"

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__(root_rank)

    def begin(self) -> None:
        """Raise TypeError for dtypes that Horovod does not broadcast, and build the broadcast."""
        check_variables(tf.global_variables())
        super().begin()


class _DistributedOptimizer(data_parallel.WrappingOptimizer):
    """Optimizer that reduces the inner optimizer's gradients over the ranks."""

    def __init__(self, optimizer: Any, name: str | None, reduce: Callable[[list[Any]], list[Any]]) -> None:
        self._reduce = reduce
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        gradients, variables = zip(*super().compute_gradients(*args, **kwargs), strict=True)
        return list(zip(self._reduce(list(gradients)), variables, strict=True))


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
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer that reduces gradients over the ranks by `op`; Keras' optimizers average, as in Horovod.

    Only `optimizer`, `name`, `compression`, `sparse_as_dense`, `backward_passes_per_step` (1), `op` and
    `gradient_predivide_factor` have an effect; `num_groups` and `groups` would change only the order of exchanges.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average only")
    if hasattr(optimizer, "get_gradients"):
        if op == Adasum:
            raise ValueError("Keras' optimizers do not support op=Adasum")
        from .. import _keras

        return _keras.DistributedOptimizer(
            optimizer,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            backward_passes_per_step=backward_passes_per_step,
        )
    refuse_accumulation(backward_passes_per_step)
    settings = (compression, sparse_as_dense, op, gradient_predivide_factor)
    return _DistributedOptimizer(optimizer, name, lambda gradients: reduce_gradients(gradients, *settings))
