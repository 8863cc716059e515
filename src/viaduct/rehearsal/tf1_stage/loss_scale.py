"""Loss scaling of tf.contrib.mixed_precision: a manager holds the scale, an optimizer uses it.

The loss is multiplied by the scale before gradients are computed, and the gradients are divided by the scale. Unless
the manager turns the overflow check off, a step with infinite or NaN gradients is skipped, and the manager may change
the scale after every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage.data_parallel import WrappingOptimizer


class LossScaleManager:
    """Interface between a loss scale and its optimizer."""

    def get_loss_scale(self) -> Any:
        raise NotImplementedError

    def update_loss_scale(self, finite_grads: Any) -> Any:
        """Return the operator that updates the scale after a step."""
        raise NotImplementedError

    def get_enable_overflow_check(self) -> bool:
        """Return True if steps with an overflow are skipped."""
        return True


class FixedLossScaleManager(LossScaleManager):
    """One scale for all steps."""

    def __init__(self, loss_scale: float) -> None:
        if loss_scale < 1:
            raise ValueError(f"loss scale must be at least 1, got {loss_scale}")
        self._loss_scale = tf.convert_to_tensor(loss_scale, dtype=tf.float32)

    def get_loss_scale(self) -> Any:
        return self._loss_scale

    def update_loss_scale(self, finite_grads: Any) -> Any:
        """Return an operator that does nothing."""
        return tf.no_op()


class ExponentialUpdateLossScaleManager(LossScaleManager):
    """Scale that grows after a number of finite steps and shrinks after overflows, but stays finite and at least 1."""

    def __init__(
        self,
        init_loss_scale: float,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2,
        decr_ratio: float = 0.8,
    ) -> None:
        self._incr_every_n_steps = incr_every_n_steps
        self._decr_every_n_nan_or_inf = decr_every_n_nan_or_inf
        self._incr_ratio = incr_ratio
        self._decr_ratio = decr_ratio
        self._loss_scale = tf.Variable(float(init_loss_scale), name="loss_scale", dtype=tf.float32, trainable=False)
        self._num_good_steps = tf.Variable(0, name="good_steps", dtype=tf.int32, trainable=False)
        self._num_bad_steps = tf.Variable(0, name="bad_steps", dtype=tf.int32, trainable=False)

    def get_loss_scale(self) -> Any:
        return tf.identity(self._loss_scale)

    def update_loss_scale(self, finite_grads: Any) -> Any:
        """Return the operator that updates the scale and the two counts.

        A step with an overflow resets the count of good steps; a change of the scale resets both counts.
        """
        scale, good, bad = (v.read_value() for v in (self._loss_scale, self._num_good_steps, self._num_bad_steps))
        grown = scale * self._incr_ratio
        grown = tf.where(tf.is_finite(grown), grown, scale)
        shrunk = tf.maximum(1.0, scale * self._decr_ratio)
        grows = tf.logical_and(finite_grads, good + 1 >= self._incr_every_n_steps)
        shrinks = tf.logical_and(tf.logical_not(finite_grads), bad + 1 >= self._decr_every_n_nan_or_inf)
        changes = tf.logical_or(grows, shrinks)
        zero = tf.zeros_like(good)
        new_good = tf.where(finite_grads, good + 1, zero)
        new_bad = tf.where(finite_grads, bad, bad + 1)
        return tf.group(
            tf.assign(self._loss_scale, tf.where(grows, grown, tf.where(shrinks, shrunk, scale))),
            tf.assign(self._num_good_steps, tf.where(changes, zero, new_good)),
            tf.assign(self._num_bad_steps, tf.where(changes, zero, new_bad)),
        )


class LossScaleOptimizer(WrappingOptimizer):
    """Optimizer that scales the loss, unscales the gradients and skips steps with an overflow."""

    def __init__(self, opt: Any, loss_scale_manager: Any) -> None:
        if not isinstance(opt, tf.train.Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        if not isinstance(loss_scale_manager, LossScaleManager):
            actual = type(loss_scale_manager)
            raise ValueError(f'"loss_scale_manager" must be an instance of LossScaleManager, but got: {actual}')
        self._opt = opt
        self._loss_scale_manager = loss_scale_manager
        super().__init__(opt, f"{type(self).__name__}{type(opt).__name__}")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, Any]]:
        scale = self._loss_scale_manager.get_loss_scale()
        value = loss() if callable(loss) else loss
        scaled = value * tf.cast(scale, value.dtype.base_dtype)
        pairs = self._opt.compute_gradients(scaled, var_list=var_list, **kwargs)
        return [(unscale_gradient(gradient, scale), variable) for gradient, variable in pairs]

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Apply gradients if all are finite, else skip the step; then update the scale.

        Without an overflow check the gradients are always applied, and the scale is not updated.
        """
        pairs = list(grads_and_vars)
        if not self._loss_scale_manager.get_enable_overflow_check():
            return self._opt.apply_gradients(pairs, global_step, name)
        finite = self.all_finite([gradient for gradient, _ in pairs if gradient is not None])
        applied = tf.cond(finite, lambda: tf.group(self._opt.apply_gradients(pairs, global_step, name)), tf.no_op)
        return tf.group(applied, self._loss_scale_manager.update_loss_scale(finite))

    def all_finite(self, gradients: list[Any]) -> Any:
        """Return a tensor that is True if no gradient has an infinity or NaN."""
        finite = [tf.reduce_all(tf.is_finite(getattr(gradient, "values", gradient))) for gradient in gradients]
        return tf.reduce_all(tf.stack(finite))


def unscale_gradient(gradient: Any, scale: Any) -> Any:
    """Divide a gradient by the scale; None stays None."""
    if gradient is None:
        return None
    if hasattr(gradient, "indices"):
        values = gradient.values / tf.cast(scale, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(scale, gradient.dtype)
