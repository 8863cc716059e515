"""Layers as functions. Variables are `weights`, `biases`, `BatchNorm/beta` … in a scope named after the layer.

The arguments `variables_collections`, `batch_weights` and `zero_debias_moving_mean` are ignored.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ..framework import model_variable
from ..framework._scopes import add_arg_scope
from ._initial import xavier_initializer

Layer = Callable[..., Any]
# Defaults of parameters; the underscores distinguish `relu_` from the layer `relu` below.
relu_, zeros_, ones_ = tf.nn.relu, tf.zeros_initializer(), tf.ones_initializer()


def pair(size: Any) -> list[int]:
    """Return a size as two numbers: height and width."""
    return [int(length) for length in size] if isinstance(size, (list, tuple)) else [int(size), int(size)]


def add_unit_axes(height_and_width: list[int], data_format: str) -> list[int]:
    """Return strides, dilations or a window for all four axes, with 1 for the batch and the channels."""
    return [1, 1, *height_and_width] if data_format == "NCHW" else [1, *height_and_width, 1]


def count_channels(inputs: Any, data_format: str) -> int:
    return int(inputs.shape[1 if data_format == "NCHW" else -1])


def make_variable(
    name: str, shape: list[int], inputs: Any, initializer: Any, regularizer: Any, trainable: bool = True
) -> Any:
    """Return a model variable for a layer, in the dtype of its inputs."""
    dtype = inputs.dtype.base_dtype
    return model_variable(
        name, shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable
    )


def finish_layer(outputs: Any, outputs_collections: Any = None, activation_fn: Any = None) -> Any:
    """Return a layer's outputs after its activation, and add them to the named collections."""
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    for collection in [outputs_collections] if isinstance(outputs_collections, str) else outputs_collections or []:
        tf.add_to_collection(collection, outputs)
    return outputs


def _shared_parameters(
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
) -> None:
    """Define the common parameters of convolutions and dense layers, in TensorFlow's order; never called."""


SHARED_PARAMETERS = list(inspect.signature(_shared_parameters).parameters.values())
AFTER_INITIALIZER = 4  # position in SHARED_PARAMETERS after weights_initializer


def layer_with_weights(default_scope: str) -> Callable[[Callable[..., Any]], Layer]:
    """Return a decorator that makes a layer of a function that computes, for example, a convolution.

    The layer adds a scope, normalizer or bias, activation and collections. The function's first argument is
    `make_weight`, a function (shape, name, initializer) that makes a variable. The layer has the function's other
    parameters, then SHARED_PARAMETERS; the function's keyword-only parameters come after weights_initializer.
    """

    def decorate(compute: Callable[..., Any]) -> Layer:
        own = list(inspect.signature(compute).parameters.values())[1:]  # parameters, without `make_weight`
        positional = [parameter for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        inserted = [
            parameter.replace(kind=parameter.POSITIONAL_OR_KEYWORD) for parameter in own if parameter not in positional
        ]
        signature = inspect.Signature(
            [*positional, *SHARED_PARAMETERS[:AFTER_INITIALIZER], *inserted, *SHARED_PARAMETERS[AFTER_INITIALIZER:]]
        )

        @functools.wraps(compute)
        def layer(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            inputs, trainable = arguments["inputs"], arguments["trainable"]

            def make_weight(shape: list[int], name: str = "weights", initializer: Any = None) -> Any:
                initializer = initializer or arguments["weights_initializer"] or xavier_initializer()
                return make_variable(name, shape, inputs, initializer, arguments["weights_regularizer"], trainable)

            with tf.variable_scope(arguments["scope"], default_scope, [inputs], reuse=arguments["reuse"]):
                outputs = compute(make_weight, **{parameter.name: arguments[parameter.name] for parameter in own})
                if arguments["normalizer_fn"] is not None:
                    outputs = arguments["normalizer_fn"](outputs, **(arguments["normalizer_params"] or {}))
                elif arguments["biases_initializer"] is not None:
                    data_format = arguments.get("data_format") or "NHWC"
                    shape, initial = [count_channels(outputs, data_format)], arguments["biases_initializer"]
                    biases = make_variable("biases", shape, inputs, initial, arguments["biases_regularizer"], trainable)
                    is_image = outputs.shape.rank == 4
                    outputs = tf.nn.bias_add(outputs, biases, data_format=data_format) if is_image else outputs + biases
                return finish_layer(outputs, arguments["outputs_collections"], arguments["activation_fn"])

        layer.__signature__ = signature  # type: ignore[attr-defined]
        return add_arg_scope(layer)

    return decorate


@layer_with_weights("Conv")
def conv2d(
    make_weight: Callable[..., Any],
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
) -> Any:
    data_format = data_format or "NHWC"
    weights = make_weight([*pair(kernel_size), count_channels(inputs, data_format), num_outputs])
    strides, rates = add_unit_axes(pair(stride), data_format), add_unit_axes(pair(rate), data_format)
    return tf.nn.conv2d(inputs, weights, strides, padding.upper(), data_format=data_format, dilations=rates)


convolution2d = conv2d


@layer_with_weights("SeparableConv2d")
def separable_conv2d(
    make_weight: Callable[..., Any],
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Any = 1,
    *,
    pointwise_initializer: Any = None,
) -> Any:
    """Add a depthwise convolution and, if num_outputs is given, a pointwise one after it."""
    depth = count_channels(inputs, data_format)
    filters = make_weight([*pair(kernel_size), depth, depth_multiplier], "depthwise_weights")
    strides = add_unit_axes(pair(stride), data_format)
    outputs = tf.nn.depthwise_conv2d(
        inputs, filters, strides, padding.upper(), rate=pair(rate), data_format=data_format
    )
    if num_outputs is None:
        return outputs
    shape = [1, 1, depth * depth_multiplier, num_outputs]
    pointwise = make_weight(shape, "pointwise_weights", pointwise_initializer)
    return tf.nn.conv2d(outputs, pointwise, [1, 1, 1, 1], "VALID", data_format=data_format)


@layer_with_weights("Conv2d_transpose")
def conv2d_transpose(
    make_weight: Callable[..., Any],
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
) -> Any:
    """Add a transposed 2-D convolution; NHWC only."""
    if data_format != "NHWC":
        raise ValueError("conv2d_transpose: the rehearsal on a CPU has NHWC only")
    window, strides = pair(kernel_size), pair(stride)
    weights = make_weight([*window, num_outputs, count_channels(inputs, data_format)])
    lengths = [transposed_length(inputs, axis, window, strides, padding) for axis in (1, 2)]
    size = tf.stack([tf.shape(inputs)[0], *lengths, num_outputs])
    return tf.nn.conv2d_transpose(inputs, weights, size, [1, *strides, 1], padding.upper())


def transposed_length(inputs: Any, axis: int, window: list[int], strides: list[int], padding: str) -> Any:
    """Return the length of axis 1 or 2 of a transposed convolution's output, a number or a tensor."""
    static_length = inputs.shape[axis].value if hasattr(inputs.shape[axis], "value") else inputs.shape[axis]
    length = static_length if static_length is not None else tf.shape(inputs)[axis]
    extra = max(window[axis - 1] - strides[axis - 1], 0) if padding.upper() == "VALID" else 0
    return length * strides[axis - 1] + extra


@layer_with_weights("fully_connected")
def fully_connected(make_weight: Callable[..., Any], inputs: Any, num_outputs: int) -> Any:
    """Add a dense layer over the last axis."""
    weights = make_weight([int(inputs.shape[-1]), num_outputs])
    return tf.tensordot(inputs, weights, [[-1], [0]]) if inputs.shape.rank > 2 else tf.matmul(inputs, weights)


def linear(inputs: Any, num_outputs: int, **kwargs: Any) -> Any:
    return fully_connected(inputs, num_outputs, activation_fn=None, **kwargs)


def relu(inputs: Any, num_outputs: int, **kwargs: Any) -> Any:
    return fully_connected(inputs, num_outputs, activation_fn=tf.nn.relu, **kwargs)


def remove_from_collection(name: str, removed: Any) -> None:
    ids = {id(element) for element in removed}
    remaining = [element for element in tf.get_collection(name) if id(element) not in ids]
    tf.get_default_graph().get_collection_ref(name)[:] = remaining


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
    """Normalise a batch; with updates_collections None the moving averages are updated within the layer.

    `param_regularizers` is ignored.
    """
    initializers = param_initializers or {}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as layer_scope:
        layer = tf.layers.BatchNormalization(
            axis=1 if data_format == "NCHW" else -1,
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=initializers.get("beta", zeros_),
            gamma_initializer=initializers.get("gamma", ones_),
            moving_mean_initializer=initializers.get("moving_mean", zeros_),
            moving_variance_initializer=initializers.get("moving_variance", ones_),
            trainable=trainable,
            fused=fused,
            name=layer_scope.name,
            _scope=layer_scope,
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
            present = {id(update) for update in tf.get_collection(updates_collections)}  # the layer may have added them
            for update in [update for update in layer.updates if id(update) not in present]:
                tf.add_to_collection(updates_collections, update)
        return finish_layer(outputs, outputs_collections, activation_fn)


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
    """Normalise over the axes from `begin_norm_axis` on, with offset and scale."""
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        rank = inputs.shape.rank
        shape = [int(size) for size in inputs.shape[begin_params_axis % rank :]]
        beta = make_variable("beta", shape, inputs, zeros_, None, trainable) if center else None
        gamma = make_variable("gamma", shape, inputs, ones_, None, trainable) if scale else None
        mean, variance = tf.nn.moments(inputs, list(range(begin_norm_axis % rank, rank)), keepdims=True)
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return finish_layer(outputs, outputs_collections, activation_fn)


def make_pooling(name: str, pool: Callable[..., Any], default_scope: str) -> Layer:
    """Return a pooling layer with this name that uses tf.nn.max_pool2d or tf.nn.avg_pool2d."""

    def pool2d(
        inputs: Any,
        kernel_size: Any,
        stride: Any = 2,
        padding: str = "VALID",
        data_format: str = "NHWC",
        outputs_collections: Any = None,
        scope: Any = None,
    ) -> Any:
        with tf.name_scope(scope or default_scope):
            window, strides = add_unit_axes(pair(kernel_size), data_format), add_unit_axes(pair(stride), data_format)
            outputs = pool(inputs, window, strides, padding.upper(), data_format)
            return finish_layer(outputs, outputs_collections)

    pool2d.__name__ = name  # `repeat` and `stack` name their scopes after it
    return add_arg_scope(pool2d)


max_pool2d = make_pooling("max_pool2d", tf.nn.max_pool2d, "MaxPool2D")
avg_pool2d = make_pooling("avg_pool2d", tf.nn.avg_pool2d, "AvgPool2D")


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
    """Add dropout; `keep_prob` is the probability of keeping a value."""
    with tf.variable_scope(scope, "Dropout", [inputs]):
        outputs = tf.layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training)
        return finish_layer(outputs, outputs_collections)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    return finish_layer(tf.layers.flatten(inputs), outputs_collections)


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
        biases = make_variable("biases", [int(inputs.shape[-1])], inputs, initializer, regularizer, trainable)
        return finish_layer(tf.nn.bias_add(inputs, biases), activation_fn=activation_fn)


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
    one_hot = tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value=on_value, off_value=off_value, name=scope)
    return finish_layer(one_hot, outputs_collections)


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """Scale to a norm of 1 along an axis."""
    lengths = tf.sqrt(tf.reduce_sum(tf.square(inputs), dim, keepdims=True) + epsilon)
    return inputs / lengths


@add_arg_scope
def repeat(inputs: Any, repetitions: int, layer: Layer, *args: Any, **kwargs: Any) -> Any:
    """Apply the same layer several times; with scope "conv" in the scopes conv/conv_1, conv/conv_2 …"""
    return apply_layers(inputs, layer, [args] * repetitions, "Repeat", **kwargs)


@add_arg_scope
def stack(inputs: Any, layer: Layer, stack_args: list[Any], **kwargs: Any) -> Any:
    """Apply a layer several times, each with its own arguments."""
    calls = [args if isinstance(args, (list, tuple)) else [args] for args in stack_args]
    return apply_layers(inputs, layer, calls, "Stack", **kwargs)


def apply_layers(
    inputs: Any, layer: Layer, calls: Sequence[Sequence[Any]], default_scope: str, scope: Any = None, **kwargs: Any
) -> Any:
    """Apply a layer once for each entry of `calls`, which holds the arguments after the inputs."""
    with tf.variable_scope(scope, default_scope, [inputs]):
        base = scope or getattr(layer, "__name__", default_scope.lower())
        for number, args in enumerate(calls, start=1):
            inputs = layer(inputs, *args, scope=f"{base}_{number}", **kwargs)
    return inputs
