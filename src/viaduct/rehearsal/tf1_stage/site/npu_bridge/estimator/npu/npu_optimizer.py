"""Optimizers that average gradients over the ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import averaging, collectives, state

from ...hccl import hccl_ops
from .npu_loss_scale_optimizer import NPULossScaleOptimizer

WORLD = collectives.WORLD


def allreduce(tensor: Any, average: bool = True) -> Any:
    """A tensor or IndexedSlices, over all ranks."""
    if hasattr(tensor, "indices"):
        mean = averaging.sparse_mean(tensor)
        return mean if average else tf.IndexedSlices(mean.values * state.size(), mean.indices, mean.dense_shape)
    total = hccl_ops.allreduce(tensor, "sum")
    return total / state.size() if average else total


def reduce(tensor: Any, root_rank: int, average: bool = True, fusion: int = 0, fusion_id: int = -1) -> Any:
    """Return the sum or mean over the ranks on the root rank."""
    total = hccl_ops.reduce(tensor, "sum", root_rank, fusion, fusion_id)
    return total / state.size() if average else total


def npu_allreduce(
    values: Any, reduction: str = "mean", fusion: int = 1, fusion_id: int = -1, group: str = WORLD
) -> Any:
    """A tensor or a list of them; here, unlike in hccl_ops, mean is a reduction."""
    if reduction not in (*collectives.REDUCTIONS, "mean"):
        raise ValueError(f"reduction must be mean, {', '.join(collectives.REDUCTIONS)}, got {reduction!r}")
    given = list(values) if isinstance(values, (list, tuple)) else [values]
    there = [tf.convert_to_tensor(value) for value in given if value is not None]
    means = reduction == "mean"
    totals = iter(collectives.allreduce(there, "sum" if means else reduction, group))
    count = len(collectives.members(group))
    done = [None if value is None else (next(totals) / count if means else next(totals)) for value in given]
    return done if isinstance(values, (list, tuple)) else done[0]


class NPUDistributedOptimizer(tf.train.Optimizer):  # type: ignore[misc]
    """The inner optimizer, with gradients that are means over the ranks."""

    def __init__(self, optimizer: Any, is_weight_update_sharding: bool = False, name: str | None = None) -> None:
        self._optimizer = optimizer
        self._is_weight_update_sharding = is_weight_update_sharding
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=False)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Compute gradients and average them over the ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        means = averaging.average_gradients([gradient for gradient, _ in pairs])
        return [(mean, variable) for mean, (_, variable) in zip(means, pairs, strict=True)]

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Apply gradients with the inner optimizer."""
        return self._optimizer.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the inner optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the slots' names of the inner optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the variables of the inner optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class NPUOptimizer(tf.train.Optimizer):  # type: ignore[misc]
    """Averages and scales in one; what it is made of is chosen by its flags."""

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
        self._is_tailing_optimization = is_tailing_optimization
        super().__init__(name=name or f"NPUOptimizer{type(opt).__name__}", use_locking=False)

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt.variables(*args, **kwargs)


def KerasDistributeOptimizer(optimizer: Any, name: str = "NpuKerasOptimizer", **kwargs: Any) -> Any:
    """A Keras optimizer whose gradients are means over the ranks: the same object, so that it is saved as itself."""
    return npu_distributed_optimizer_wrapper(optimizer)


def npu_distributed_optimizer_wrapper(optimizer: Any) -> Any:
    """Changes the object in place and returns it; a string is Keras' name of an optimizer."""
    if isinstance(optimizer, str):
        optimizer = tf.keras.optimizers.get(optimizer)
    if getattr(optimizer, "_averages", False):
        return optimizer
    if hasattr(optimizer, "get_gradients"):
        plain = optimizer.get_gradients
        optimizer.get_gradients = lambda loss, params: averaging.average_gradients(plain(loss, params))
    else:
        compute = optimizer.compute_gradients
        optimizer.compute_gradients = lambda *args, **kwargs: average_pairs(compute(*args, **kwargs))
    optimizer._averages = True
    return optimizer


def average_pairs(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Average the gradients of (gradient, variable) pairs over the ranks."""
    means = averaging.average_gradients([gradient for gradient, _ in pairs])
    return [(mean, variable) for mean, (_, variable) in zip(means, pairs, strict=True)]
