"""tf.contrib.mixed_precision: loss scaling."""

from viaduct.rehearsal.tf1_stage.loss_scale import (
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
    LossScaleManager,
    LossScaleOptimizer,
)

__all__ = ["ExponentialUpdateLossScaleManager", "FixedLossScaleManager", "LossScaleManager", "LossScaleOptimizer"]
