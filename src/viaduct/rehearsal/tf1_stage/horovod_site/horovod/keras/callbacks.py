"""horovod.keras.callbacks: callbacks for Keras' fit."""

from ..tensorflow.keras.callbacks import *  # noqa: F403
