"""Parts of tf.contrib, which TensorFlow 2 does not have; `import tensorflow.contrib.slim` imports them from here."""

from __future__ import annotations

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return importlib.import_module(f"tensorflow.contrib.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(str(error)) from None
