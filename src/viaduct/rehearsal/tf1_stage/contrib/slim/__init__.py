"""tf.contrib.slim: layers, scopes of arguments, losses and a training loop."""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ..framework import (
    assign_from_checkpoint,
    assign_from_checkpoint_fn,
    create_global_step,
    get_global_step,
    get_model_variables,
    get_or_create_global_step,
    get_trainable_variables,
    get_variables,
    get_variables_to_restore,
    model_variable,
    variable,
)
from ..framework._scopes import add_arg_scope, arg_scope, arg_scoped_arguments, current_arg_scope, has_arg_scope
from ..layers._functions import (
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
    repeat,
    separable_conv2d,
    softmax,
    stack,
    unit_norm,
)
from ..layers._initial import (
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    variance_scaling_initializer,
    xavier_initializer,
)
from . import learning, model_analyzer

losses = tf.losses
metrics = tf.metrics
separable_convolution2d = separable_conv2d
