"""Managers that hold and update the loss scale."""

from __future__ import annotations

from viaduct.rehearsal.tf1_stage import loss_scale
from viaduct.rehearsal.tf1_stage.loss_scale import ExponentialUpdateLossScaleManager, LossScaleManager

__all__ = ["ExponentialUpdateLossScaleManager", "FixedLossScaleManager", "LossScaleManager"]


class FixedLossScaleManager(loss_scale.FixedLossScaleManager):
    """One scale for all steps; with enable_overflow_check steps with an overflow are skipped."""

    def __init__(self, loss_scale: float, enable_overflow_check: bool = True) -> None:
        super().__init__(loss_scale)
        self._enable_overflow_check = enable_overflow_check

    def get_enable_overflow_check(self) -> bool:
        return self._enable_overflow_check
