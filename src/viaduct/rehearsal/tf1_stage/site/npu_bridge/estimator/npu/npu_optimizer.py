"""Optimizers that average gradients over the ranks."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives, data_parallel, state

from ...hccl import hccl_ops
from .npu_loss_scale_optimizer import NPULossScaleOptimizer

WORLD = collectives.WORLD


def allreduce(tensor: Any, average: bool = True) -> Any:
    """Return the mean or sum of a tensor or of IndexedSlices over all ranks."""
    if hasattr(tensor, "indices"):
        mean = data_parallel.average_slices(tensor)
        return mean if average else tf.IndexedSlices(mean.values * state.size(), mean.indices, mean.dense_shape)
    total = hccl_ops.allreduce(tensor, "sum")
    return total / state.size() if average else total


def reduce(tensor: Any, root_rank: int, average: bool = True, fusion: int = 0, fusion_id: int = -1) -> Any:
    """Return the sum or mean over the ranks on the root rank, and zeros on the others."""
    total = hccl_ops.reduce(tensor, "sum", root_rank, fusion, fusion_id)
    return total / state.size() if average else total


def npu_allreduce(
    values: Any, reduction: str = "mean", fusion: int = 1, fusion_id: int = -1, group: str = WORLD
) -> Any:
    """Return a tensor or a list of tensors reduced over the ranks; None stays None."""
    if reduction not in (*collectives.REDUCTIONS, "mean"):
        raise ValueError(f"reduction must be mean, {', '.join(collectives.REDUCTIONS)}, got {reduction!r}")
    inputs = list(values) if isinstance(values, (list, tuple)) else [values]
    tensors = [tf.convert_to_tensor(value) for value in inputs if value is not None]
    reduced = collectives.allreduce(tensors, "sum" if reduction == "mean" else reduction, group)
    if reduction == "mean":
        reduced = [total / len(collectives.list_members(group)) for total in reduced]
    remaining = iter(reduced)
    results = [None if value is None else next(remaining) for value in inputs]
    return results if isinstance(values, (list, tuple)) else results[0]


class NPUDistributedOptimizer(data_parallel.WrappingOptimizer):
    """Optimizer that averages the inner optimizer's gradients; `is_weight_update_sharding` has no effect."""

    def __init__(self, optimizer: Any, is_weight_update_sharding: bool = False, name: str | None = None) -> None:
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        return average_pairs(super().compute_gradients(*args, **kwargs))


class NPUOptimizer(data_parallel.WrappingOptimizer):
    """Optimizer that averages gradients with `is_distributed`, and scales the loss with `is_loss_scale`.

    `is_tailing_optimization` has no effect.
    """

    def __init__(
        self,
        opt: Any,
        loss_scale_manager: Any = None,
        is_distributed: bool = False,
        is_loss_scale: bool = False,
        is_tailing_optimization: bool = False,
        name: str | None = None,
    ) -> None:
        if is_loss_scale and loss_scale_manager is None:
            raise ValueError("is_loss_scale is True, loss_scale_manager can not be None")
        inner = NPUDistributedOptimizer(opt) if is_distributed else opt
        self._opt = NPULossScaleOptimizer(inner, loss_scale_manager, is_distributed) if is_loss_scale else inner
        super().__init__(self._opt, name or f"NPUOptimizer{type(opt).__name__}")


def KerasDistributeOptimizer(optimizer: Any, name: str = "NpuKerasOptimizer", **kwargs: Any) -> Any:
    """Change a Keras optimizer as npu_distributed_optimizer_wrapper does.

    The optimizer keeps its class; `name` and `kwargs` are ignored.
    """
    return npu_distributed_optimizer_wrapper(optimizer)


def npu_distributed_optimizer_wrapper(optimizer: Any) -> Any:
    """Change an optimizer to average its gradients over the ranks, and return it.

    `optimizer` is an object, or Keras' name of an optimizer, such as "adam".
    """
    if isinstance(optimizer, str):
        optimizer = tf.keras.optimizers.get(optimizer)
    if getattr(optimizer, "_averages", False):
        return optimizer
    if hasattr(optimizer, "get_gradients"):
        plain = optimizer.get_gradients
        optimizer.get_gradients = lambda loss, params: data_parallel.average_gradients(plain(loss, params))
    else:
        compute = optimizer.compute_gradients
        optimizer.compute_gradients = lambda *args, **kwargs: average_pairs(compute(*args, **kwargs))
    optimizer._averages = True
    return optimizer


def average_pairs(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Average the gradients of (gradient, variable) pairs over the ranks."""
    means = data_parallel.average_gradients([gradient for gradient, _ in pairs])
    return [(mean, variable) for mean, (_, variable) in zip(means, pairs, strict=True)]
