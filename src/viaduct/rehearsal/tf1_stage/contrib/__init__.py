"""Parts of tf.contrib, which TensorFlow 2 dropped; `import tensorflow.contrib.slim` finds them here."""

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
