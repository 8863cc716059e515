"""Functions and callbacks of horovod.keras and horovod.tensorflow.keras."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives, data_parallel, state

from . import tensorflow as hvd
from .tensorflow import _exchanges
from .tensorflow.compression import Compression


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = _exchanges.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Change a Keras optimizer to use means or sums of gradients over the ranks, and return it.

    `name`, `device_dense`, `device_sparse` and the arguments after `backward_passes_per_step` have no effect.
    """
    if op not in (_exchanges.Average, _exchanges.Sum):
        raise ValueError("Keras' optimizers support op=Average and op=Sum only")
    _exchanges.refuse_accumulation(backward_passes_per_step)
    plain, settings = optimizer.get_gradients, (compression, sparse_as_dense, op, gradient_predivide_factor)
    optimizer.get_gradients = lambda loss, params: _exchanges.reduce_gradients(plain(loss, params), *settings)
    return optimizer


def broadcast_global_variables(root_rank: int) -> Any:
    return tf.keras.backend.get_session().run(hvd.broadcast_global_variables(root_rank))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return a value reduced over the ranks as an array."""
    reduced = _exchanges.allreduce(
        tf.constant(value),
        average=average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return tf.keras.backend.get_session().run(reduced)


def allgather(value: Any, name: str | None = None) -> Any:
    return tf.keras.backend.get_session().run(_exchanges.allgather(tf.constant(value)))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    return tf.keras.backend.get_session().run(_exchanges.broadcast(tf.constant(value), root_rank))


def load_model(
    filepath: str, custom_optimizers: Any = None, custom_objects: Any = None, compression: Any = Compression.none
) -> Any:
    objects = {**{kind.__name__: kind for kind in custom_optimizers or []}, **(custom_objects or {})}
    model = tf.keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model


class BroadcastGlobalVariablesCallback(data_parallel.BroadcastCallback):
    """Callback that broadcasts the root's weights at the first batch."""

    op_name = "HorovodBroadcast"

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__(root_rank)

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.broadcast_done:
            _exchanges.check_variables(tf.global_variables())
        super().on_batch_begin(batch, logs)


class MetricAverageCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that replaces an epoch's metrics by their means over the ranks."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs or state.size() == 1:
            return
        import numpy as np

        names = sorted(logs)  # in the same order on every rank
        values = np.array([float(logs[name]) for name in names])
        ranks = collectives.list_members(collectives.WORLD)
        (total,) = collectives.reduce_arrays(f"{collectives.WORLD}|metrics", ranks, [values], "sum")
        logs.update(zip(names, total / state.size(), strict=True))


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that multiplies the initial learning rate by a number or a function of the epoch.

    `momentum_correction` is ignored.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Any = 1.0,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr, self.multiplier, self.staircase = initial_lr, multiplier, staircase
        self.start_epoch, self.end_epoch, self.steps_per_epoch = start_epoch, end_epoch, steps_per_epoch
        self.current_epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch
        if self.staircase:
            self.adjust(float(epoch))

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.staircase:
            steps = self.steps_per_epoch or self.params.get("steps") or 1
            self.adjust(self.current_epoch + batch / steps)

    def adjust(self, epoch: float) -> None:
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        factor = self.multiplier(epoch) if callable(self.multiplier) else self.multiplier
        tf.keras.backend.set_value(self.model.optimizer.lr, self.initial_lr * factor)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Callback that raises the learning rate from `initial_lr` divided by the number of ranks to `initial_lr`."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # As in Horovod, the end of the batch counts: `initial_lr` is reached with the last batch of the warm-up.
            epoch += 1.0 / (self.steps_per_epoch or self.params.get("steps") or 1)
            return 1.0 / state.size() * (epoch * (state.size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
