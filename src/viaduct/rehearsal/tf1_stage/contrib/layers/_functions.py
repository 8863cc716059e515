"""Layers as functions. Variables are `weights`, `biases`, `BatchNorm/beta` … in a scope named after the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ..framework import model_variable
from ..framework._scopes import add_arg_scope
from ._initial import xavier_initializer

Layer = Callable[..., Any]
relu_, zeros_, ones_ = tf.nn.relu, tf.zeros_initializer(), tf.ones_initializer()


def pair(size: Any) -> list[int]:
    """Return a size as two numbers: height and width."""
    return [int(part) for part in size] if isinstance(size, (list, tuple)) else [int(size), int(size)]


def spatial(values: list[int], data_format: str) -> list[int]:
    """Strides or windows of all four dimensions."""
    return [1, 1, *values] if data_format == "NCHW" else [1, *values, 1]


def channels(inputs: Any, data_format: str) -> int:
    """Return the number of channels of a tensor."""
    return int(inputs.shape[1 if data_format == "NCHW" else -1])


def weights_of(
    shape: list[int], inputs: Any, initializer: Any, regularizer: Any, trainable: bool, name: str = "weights"
) -> Any:
    """Return a model variable for a layer, in the dtype of its inputs."""
    return model_variable(
        name,
        shape,
        dtype=inputs.dtype.base_dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
    )


def finish_layer(
    outputs: Any,
    inputs: Any,
    count: int,
    normalizer_fn: Any,
    normalizer_params: Any,
    activation_fn: Any,
    biases_initializer: Any,
    biases_regularizer: Any,
    trainable: bool,
    data_format: str = "NHWC",
) -> Any:
    """Apply normalizer or bias, then the activation."""
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    elif biases_initializer is not None:
        biases = weights_of([count], inputs, biases_initializer, biases_regularizer, trainable, "biases")
        outputs = (
            tf.nn.bias_add(outputs, biases, data_format=data_format) if outputs.shape.rank == 4 else outputs + biases
        )
    return outputs if activation_fn is None else activation_fn(outputs)


def add_to_collections(outputs: Any, outputs_collections: Any, scope: Any) -> Any:
    """Add outputs to the named collections."""
    for collection in [outputs_collections] if isinstance(outputs_collections, str) else outputs_collections or []:
        tf.add_to_collection(collection, outputs)
    return outputs


@add_arg_scope
def conv2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = relu_,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = zeros_,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Add a 2-D convolution with its normalizer or bias and its activation."""
    layout = data_format or "NHWC"
    with tf.variable_scope(scope, "Conv", [inputs], reuse=reuse) as home:
        shape = [*pair(kernel_size), channels(inputs, layout), num_outputs]
        weights = weights_of(shape, inputs, weights_initializer or xavier_initializer(), weights_regularizer, trainable)
        strides, rates = spatial(pair(stride), layout), spatial(pair(rate), layout)
        outputs = tf.nn.conv2d(inputs, weights, strides, padding.upper(), data_format=layout, dilations=rates)
        outputs = finish_layer(
            outputs, inputs, num_outputs, normalizer_fn, normalizer_params, activation_fn,
            biases_initializer, biases_regularizer, trainable, layout,
        )  # fmt: skip
        return add_to_collections(outputs, outputs_collections, home)


convolution2d = conv2d


@add_arg_scope
def separable_conv2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Any = 1,
    activation_fn: Any = relu_,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = zeros_,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Each channel by itself; with num_outputs then a mixture of them."""
    first = weights_initializer or xavier_initializer()
    with tf.variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse) as home:
        depth = channels(inputs, data_format)
        shape = [*pair(kernel_size), depth, depth_multiplier]
        filters = weights_of(shape, inputs, first, weights_regularizer, trainable, "depthwise_weights")
        strides = spatial(pair(stride), data_format)
        outputs = tf.nn.depthwise_conv2d(
            inputs, filters, strides, padding.upper(), rate=pair(rate), data_format=data_format
        )
        if num_outputs is not None:
            mixing = [1, 1, depth * depth_multiplier, num_outputs]
            point = weights_of(
                mixing, inputs, pointwise_initializer or first, weights_regularizer, trainable, "pointwise_weights"
            )
            outputs = tf.nn.conv2d(outputs, point, [1, 1, 1, 1], "VALID", data_format=data_format)
        outputs = finish_layer(
            outputs, inputs, num_outputs or depth * depth_multiplier, normalizer_fn, normalizer_params, activation_fn,
            biases_initializer, biases_regularizer, trainable, data_format,
        )  # fmt: skip
        return add_to_collections(outputs, outputs_collections, home)


@add_arg_scope
def conv2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: Any = relu_,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = zeros_,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Add a transposed 2-D convolution; NHWC only."""
    if data_format != "NHWC":
        raise ValueError("conv2d_transpose: the rehearsal on a CPU has NHWC only")
    with tf.variable_scope(scope, "Conv2d_transpose", [inputs], reuse=reuse) as home:
        window, steps = pair(kernel_size), pair(stride)
        shape = [*window, num_outputs, channels(inputs, data_format)]
        weights = weights_of(shape, inputs, weights_initializer or xavier_initializer(), weights_regularizer, trainable)
        grown = [more(inputs, axis, window, steps, padding) for axis in (1, 2)]
        size = tf.stack([tf.shape(inputs)[0], *grown, num_outputs])
        outputs = tf.nn.conv2d_transpose(inputs, weights, size, [1, *steps, 1], padding.upper())
        outputs = finish_layer(
            outputs, inputs, num_outputs, normalizer_fn, normalizer_params, activation_fn,
            biases_initializer, biases_regularizer, trainable,
        )  # fmt: skip
        return add_to_collections(outputs, outputs_collections, home)


def more(inputs: Any, axis: int, window: list[int], steps: list[int], padding: str) -> Any:
    """Return the size of one output axis of a transposed convolution."""
    known = inputs.shape[axis].value if hasattr(inputs.shape[axis], "value") else inputs.shape[axis]
    size = known if known is not None else tf.shape(inputs)[axis]
    wider = max(window[axis - 1] - steps[axis - 1], 0) if padding.upper() == "VALID" else 0
    return size * steps[axis - 1] + wider


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Any = relu_,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = zeros_,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Add a dense layer with its normalizer or bias and its activation."""
    with tf.variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as home:
        shape = [int(inputs.shape[-1]), num_outputs]
        weights = weights_of(shape, inputs, weights_initializer or xavier_initializer(), weights_regularizer, trainable)
        outputs = tf.tensordot(inputs, weights, [[-1], [0]]) if inputs.shape.rank > 2 else tf.matmul(inputs, weights)
        outputs = finish_layer(
            outputs, inputs, num_outputs, normalizer_fn, normalizer_params, activation_fn,
            biases_initializer, biases_regularizer, trainable,
        )  # fmt: skip
        return add_to_collections(outputs, outputs_collections, home)


def linear(inputs: Any, num_outputs: int, **kwargs: Any) -> Any:
    """Add a dense layer without an activation."""
    return fully_connected(inputs, num_outputs, activation_fn=None, **kwargs)


def relu(inputs: Any, num_outputs: int, **kwargs: Any) -> Any:
    """Add a dense layer with ReLU."""
    return fully_connected(inputs, num_outputs, activation_fn=tf.nn.relu, **kwargs)


def remove_from_collection(name: str, removed: Any) -> None:
    """Take out what a layer of tf.layers has put there by itself."""
    known = {id(update) for update in removed}
    kept = [update for update in tf.get_collection(name) if id(update) not in known]
    tf.get_default_graph().get_collection_ref(name)[:] = kept


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = tf.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    **kwargs: Any,
) -> Any:
    """Normalise a batch; with updates_collections None the averages are updated within the layer."""
    first = param_initializers or {}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as home:
        layer = tf.layers.BatchNormalization(
            axis=1 if data_format == "NCHW" else -1,
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=first.get("beta", tf.zeros_initializer()),
            gamma_initializer=first.get("gamma", tf.ones_initializer()),
            moving_mean_initializer=first.get("moving_mean", tf.zeros_initializer()),
            moving_variance_initializer=first.get("moving_variance", tf.ones_initializer()),
            trainable=trainable,
            fused=fused,
            name=home.name,
            _scope=home,
            _reuse=reuse,
        )
        outputs = layer.apply(inputs, training=is_training)
        for variable in layer.variables:
            tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, variable)
        if updates_collections != tf.GraphKeys.UPDATE_OPS:
            remove_from_collection(tf.GraphKeys.UPDATE_OPS, layer.updates)
        if updates_collections is None:
            with tf.control_dependencies(layer.updates):
                outputs = tf.identity(outputs)
        else:
            there = tf.get_collection(updates_collections)  # the layer itself has put them among UPDATE_OPS
            for update in [update for update in layer.updates if not any(update is other for other in there)]:
                tf.add_to_collection(updates_collections, update)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return add_to_collections(outputs, outputs_collections, home)


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalise over the axes from `begin_norm_axis` on, with centre and scale."""
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as home:
        rank = inputs.shape.rank
        shape = [int(size) for size in inputs.shape[begin_params_axis % rank :]]
        beta = weights_of(shape, inputs, zeros_, None, trainable, "beta") if center else None
        gamma = weights_of(shape, inputs, ones_, None, trainable, "gamma") if scale else None
        mean, variance = tf.nn.moments(inputs, list(range(begin_norm_axis % rank, rank)), keepdims=True)
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return add_to_collections(outputs, outputs_collections, home)


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Add 2-D max pooling."""
    with tf.name_scope(scope or "MaxPool2D"):
        window, steps = spatial(pair(kernel_size), data_format), spatial(pair(stride), data_format)
        return add_to_collections(
            tf.nn.max_pool2d(inputs, window, steps, padding.upper(), data_format), outputs_collections, scope
        )


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Add 2-D average pooling."""
    with tf.name_scope(scope or "AvgPool2D"):
        window, steps = spatial(pair(kernel_size), data_format), spatial(pair(stride), data_format)
        return add_to_collections(
            tf.nn.avg_pool2d(inputs, window, steps, padding.upper(), data_format), outputs_collections, scope
        )


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """Add dropout, given by the probability of keeping a value."""
    with tf.variable_scope(scope, "Dropout", [inputs]):
        outputs = tf.layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training)
        return add_to_collections(outputs, outputs_collections, scope)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """Flatten everything but the batch."""
    return add_to_collections(tf.layers.flatten(inputs), outputs_collections, scope)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Any = None,
    initializer: Any = zeros_,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Add a bias over the last axis, and an activation."""
    with tf.variable_scope(scope, "BiasAdd", [inputs]):
        biases = weights_of([int(inputs.shape[-1])], inputs, initializer, regularizer, trainable, "biases")
        outputs = tf.nn.bias_add(inputs, biases)
        return outputs if activation_fn is None else activation_fn(outputs)


@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Any:
    return tf.nn.softmax(logits, name=scope)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Encode labels as one-hot vectors."""
    hot = tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value=on_value, off_value=off_value, name=scope)
    return add_to_collections(hot, outputs_collections, scope)


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """Scale to length 1 along an axis."""
    lengths = tf.sqrt(tf.reduce_sum(tf.square(inputs), dim, keepdims=True) + epsilon)
    return inputs / lengths


@add_arg_scope
def repeat(inputs: Any, repetitions: int, layer: Layer, *args: Any, **kwargs: Any) -> Any:
    """The same layer again and again: conv/conv_1, conv/conv_2 …"""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Repeat", [inputs]):
        base = scope or getattr(layer, "__name__", "repeat")
        for number in range(repetitions):
            inputs = layer(inputs, *args, scope=f"{base}_{number + 1}", **kwargs)
    return inputs


@add_arg_scope
def stack(inputs: Any, layer: Layer, stack_args: list[Any], **kwargs: Any) -> Any:
    """Apply a layer several times, each with its own arguments."""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Stack", [inputs]):
        base = scope or getattr(layer, "__name__", "stack")
        for number, args in enumerate(stack_args):
            given = args if isinstance(args, (list, tuple)) else [args]
            inputs = layer(inputs, *given, scope=f"{base}_{number + 1}", **kwargs)
    return inputs
