"""tensorflow.contrib.layers.python.layers; initializers, layers and regularizers are contrib.layers here."""

# ruff: noqa: F401 - names that scripts import from here

import tensorflow.contrib.layers as initializers  # type: ignore[import-not-found,unused-ignore]
import tensorflow.contrib.layers as layers  # type: ignore[import-not-found,unused-ignore]
import tensorflow.contrib.layers as regularizers  # type: ignore[import-not-found,unused-ignore]
from tensorflow.contrib.layers import *  # type: ignore[import-not-found,unused-ignore]  # noqa: F403
