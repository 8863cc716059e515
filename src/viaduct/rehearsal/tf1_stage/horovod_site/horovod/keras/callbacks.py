"""Callbacks of fit."""

from ..tensorflow.keras.callbacks import *  # noqa: F403
