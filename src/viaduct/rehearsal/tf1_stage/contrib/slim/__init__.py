"""tf.contrib.slim: all names of contrib.layers and contrib.framework, losses, metrics and a training loop."""

# ruff: noqa: F401 - names that scripts import from here

import tensorflow.compat.v1 as tf

from ..framework import *  # noqa: F403
from ..layers import *  # noqa: F403
from ..layers._functions import separable_conv2d as separable_convolution2d
from . import learning, model_analyzer

losses = tf.losses
metrics = tf.metrics
