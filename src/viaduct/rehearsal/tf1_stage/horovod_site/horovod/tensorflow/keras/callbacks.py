"""horovod.tensorflow.keras.callbacks: callbacks for Keras' fit."""

# ruff: noqa: F401 - names that scripts import from here

from ..._keras import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)
