"""tf.contrib.layers: layers as functions, with the variable names that checkpoints of TensorFlow 1 have."""

# ruff: noqa: F401 - names that scripts import from here

from ._functions import (
    avg_pool2d,
    batch_norm,
    bias_add,
    conv2d,
    conv2d_transpose,
    convolution2d,
    dropout,
    flatten,
    fully_connected,
    layer_norm,
    linear,
    max_pool2d,
    one_hot_encoding,
    relu,
    repeat,
    separable_conv2d,
    softmax,
    stack,
    unit_norm,
)
from ._initial import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
    variance_scaling_initializer,
    xavier_initializer,
    xavier_initializer_conv2d,
)
