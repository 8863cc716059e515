"""NPULossScaleOptimizer: scales the loss, unscales gradients, skips steps with an overflow."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal.tf1_stage import collectives, loss_scale


class NPULossScaleOptimizer(loss_scale.LossScaleOptimizer):
    """Optimizer with loss scaling. Overflows are found in the gradients; the NPU's optimizer reads a register.

    With `is_distributed` all ranks skip a step if one of them has an overflow.
    """

    def __init__(self, opt: Any, loss_scale_manager: Any, is_distributed: bool = False) -> None:
        super().__init__(opt, loss_scale_manager)
        self._is_distributed = is_distributed

    def all_finite(self, gradients: list[Any]) -> Any:
        """Return a tensor that is True if no gradient of this rank, or of any rank, has an infinity or NaN."""
        finite = super().all_finite(gradients)
        if self._is_distributed:
            (least,) = collectives.allreduce([tf.cast(finite, tf.int32)], "min", op_name="HcomOverflow")
            finite = tf.equal(least, 1)
        return finite

    def __getattr__(self, name: str) -> Any:
        """Return attributes of the inner optimizer."""
        if name.startswith("__") or name == "_opt":
            raise AttributeError(name)
        return getattr(self._opt, name)
